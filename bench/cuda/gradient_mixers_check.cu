// The delta rule and attention, forward and backward, against loops in double.
#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/gradient/gradient_attention.h"
#include "backend/cuda/ops/gradient/gradient_delta.h"
#include "gradient_check.h"

namespace nibble::bench {
namespace {

using namespace nibble::checks;
using namespace nibble::cuda;
using checks::Error;

constexpr double kDeltaError = 1e-5;      // F32
constexpr double kAttentionError = 1e-4;  // operands of 16 bits

std::vector<float> numbers(int64_t count, uint32_t seed, float scale, float shift = 0.0F) {
  std::vector<float> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) x[i] = scale * hash_normal(seed, i) + shift;
  return x;
}

struct Samples {
  std::vector<SampleOfRow> of_row;
  std::vector<DeltaSample> samples;

  explicit Samples(const std::vector<int>& lengths) {
    int32_t begin = 0, chunk = 0;
    for (const int length : lengths) {
      samples.push_back({begin, length, chunk});
      of_row.resize(of_row.size() + length, {begin, begin + length});
      begin += length;
      chunk += (length + kGradientChunk - 1) / kGradientChunk;
    }
  }
  int rows() const { return static_cast<int>(of_row.size()); }
  int chunks() const {
    const DeltaSample& last = samples.back();
    return last.chunk + (last.count + kGradientChunk - 1) / kGradientChunk;
  }
};

// ---- delta rule ----

struct DeltaCase {
  int k_heads, v_heads, k_dim, v_dim;
};

struct DeltaNumbers {
  std::vector<float> q, k, active, alpha, beta, dmixed;
  int64_t channels;

  DeltaNumbers(const DeltaCase& one, int rows) {
    channels = 2 * one.k_heads * one.k_dim + one.v_heads * one.v_dim;
    const float unit = 1.0F / std::sqrt(static_cast<float>(one.k_dim));
    q = numbers(int64_t{rows} * one.k_heads * one.k_dim, 1, unit);
    k = numbers(int64_t{rows} * one.k_heads * one.k_dim, 2, unit);
    active = numbers(rows * channels, 3, 1.0F);
    alpha = numbers(int64_t{rows} * one.v_heads, 4, 0.03F, 0.9F);
    beta = numbers(int64_t{rows} * one.v_heads, 5, 0.1F, 0.5F);
    dmixed = numbers(int64_t{rows} * one.v_heads * one.v_dim, 6, 1.0F);
  }
};

/// One head of one sample, as the definition has it, with the state before each token kept.
struct DeltaHead {
  std::vector<double> mixed, dq, dk, dv, dalpha, dbeta;

  DeltaHead(const DeltaCase& c, const DeltaNumbers& x, const DeltaSample& sample, int head) {
    const int rows = sample.count, kd = c.k_dim, vd = c.v_dim;
    const int key_head = head / (c.v_heads / c.k_heads);
    std::vector<std::vector<double>> before, pred;
    std::vector<double> s(kd * vd, 0.0);
    const auto key = [&](const std::vector<float>& from, int t, int i) {
      return static_cast<double>(from[(int64_t{sample.begin + t} * c.k_heads + key_head) * kd + i]);
    };
    const auto value = [&](int t, int j) {
      return static_cast<double>(
          x.active[(sample.begin + t) * x.channels + 2 * c.k_heads * kd + head * vd + j]);
    };
    const auto gate = [&](const std::vector<float>& from, int t) {
      return static_cast<double>(from[int64_t{sample.begin + t} * c.v_heads + head]);
    };
    mixed.assign(rows * vd, 0.0);
    for (int t = 0; t < rows; ++t) {
      before.push_back(s);
      std::vector<double> p(vd, 0.0);
      for (int i = 0; i < kd; ++i)
        for (int j = 0; j < vd; ++j) p[j] += gate(x.alpha, t) * s[i * vd + j] * key(x.k, t, i);
      for (int i = 0; i < kd; ++i)
        for (int j = 0; j < vd; ++j) {
          double& one = s[i * vd + j];
          one = gate(x.alpha, t) * one + key(x.k, t, i) * gate(x.beta, t) * (value(t, j) - p[j]);
          mixed[t * vd + j] += one * key(x.q, t, i);
        }
      pred.push_back(p);
    }
    dq.assign(rows * kd, 0.0);
    dk.assign(rows * kd, 0.0);
    dv.assign(rows * vd, 0.0);
    dalpha.assign(rows, 0.0);
    dbeta.assign(rows, 0.0);
    std::vector<double> ds(kd * vd, 0.0);
    for (int t = rows - 1; t >= 0; --t) {
      const double a = gate(x.alpha, t), b = gate(x.beta, t);
      std::vector<double> du(vd, 0.0);
      for (int i = 0; i < kd; ++i)
        for (int j = 0; j < vd; ++j) {
          const double dout = x.dmixed[(int64_t{sample.begin + t} * c.v_heads + head) * vd + j];
          const double u = b * (value(t, j) - pred[t][j]);
          const double after = a * before[t][i * vd + j] + key(x.k, t, i) * u;
          ds[i * vd + j] += key(x.q, t, i) * dout;
          dq[t * kd + i] += after * dout;
          dk[t * kd + i] += ds[i * vd + j] * u;
          du[j] += ds[i * vd + j] * key(x.k, t, i);
        }
      for (int j = 0; j < vd; ++j) {
        dbeta[t] += du[j] * (value(t, j) - pred[t][j]);
        dv[t * vd + j] = b * du[j];
      }
      for (int i = 0; i < kd; ++i)
        for (int j = 0; j < vd; ++j) {
          double& one = ds[i * vd + j];
          dk[t * kd + i] -= a * before[t][i * vd + j] * b * du[j];
          one -= key(x.k, t, i) * b * du[j];
          dalpha[t] += one * before[t][i * vd + j];
          one *= a;
        }
    }
  }
};

void check_delta_case(Tally& tally, const DeltaCase& c, int shared_bytes) {
  const Samples samples({1, 5, 37, 16, 70});
  const int rows = samples.rows();
  const DeltaNumbers x(c, rows);
  const GradientDelta shape{.rows = rows,
                            .k_heads = c.k_heads,
                            .v_heads = c.v_heads,
                            .k_dim = c.k_dim,
                            .v_dim = c.v_dim,
                            .taps = 4,
                            .sample_of_row = to_device(samples.of_row),
                            .samples = to_device(samples.samples),
                            .sample_count = static_cast<int32_t>(samples.samples.size())};
  const DeltaRows on_card{to_device(x.q), to_device(x.k), to_device(x.active), to_device(x.alpha),
                          to_device(x.beta)};
  const int64_t keys = int64_t{rows} * c.v_heads * c.k_dim;
  const int64_t values = int64_t{rows} * c.v_heads * c.v_dim, gates = int64_t{rows} * c.v_heads;
  auto* mixed = device_array<float>(values);
  auto* starts = device_array<float>(samples.chunks() * c.v_heads * delta_state_floats(c.v_dim));
  constexpr int kBlocks = 7;  // fewer than heads of samples
  const DeltaBack back{.starts = starts,
                       .dmixed = to_device(x.dmixed),
                       .scratch = device_array<float>(kBlocks * delta_scratch_floats(c.v_dim)),
                       .blocks = kBlocks,
                       .shared_bytes = shared_bytes,
                       .dq = device_array<float>(keys),
                       .dk = device_array<float>(keys),
                       .dactive = device_array<float>(rows * x.channels),
                       .dalpha = device_array<float>(gates),
                       .dbeta = device_array<float>(gates)};
  must(delta_forward(shape, on_card, mixed, starts, nullptr), "delta forward");
  must(delta_backward(shape, on_card, back, nullptr), "delta backward");
  const auto found_mixed = to_host(mixed, values), dq = to_host(back.dq, keys),
             dk = to_host(back.dk, keys), dactive = to_host(back.dactive, rows * x.channels),
             dalpha = to_host(back.dalpha, gates), dbeta = to_host(back.dbeta, gates);
  Error e_mixed, e_dq, e_dk, e_dv, e_dalpha, e_dbeta;
  for (const DeltaSample& sample : samples.samples)
    for (int head = 0; head < c.v_heads; ++head) {
      const DeltaHead want(c, x, sample, head);
      for (int t = 0; t < sample.count; ++t) {
        const int64_t row = sample.begin + t, at = row * c.v_heads + head;
        for (int j = 0; j < c.v_dim; ++j) {
          e_mixed.add(found_mixed[at * c.v_dim + j], want.mixed[t * c.v_dim + j]);
          e_dv.add(dactive[row * x.channels + 2 * c.k_heads * c.k_dim + head * c.v_dim + j],
                   want.dv[t * c.v_dim + j]);
        }
        for (int i = 0; i < c.k_dim; ++i) {
          e_dq.add(dq[at * c.k_dim + i], want.dq[t * c.k_dim + i]);
          e_dk.add(dk[at * c.k_dim + i], want.dk[t * c.k_dim + i]);
        }
        e_dalpha.add(dalpha[at], want.dalpha[t]);
        e_dbeta.add(dbeta[at], want.dbeta[t]);
      }
    }
  const std::string name = "delta rule " + std::to_string(c.k_dim) + " x " +
                           std::to_string(c.v_dim) + ", " + std::to_string(shared_bytes) +
                           " bytes shared: ";
  const std::pair<const char*, const Error*> all[] = {{"outputs", &e_mixed}, {"dq", &e_dq},
                                                      {"dk", &e_dk},         {"dv", &e_dv},
                                                      {"dalpha", &e_dalpha}, {"dbeta", &e_dbeta}};
  for (const auto& [part, error] : all)
    tally.check(error->value() < kDeltaError, (name + part).c_str(), error->value());
}

// ---- attention ----

struct AttentionCase {
  int q_heads, kv_heads, dim;
};

void check_attention_case(Tally& tally, const AttentionCase& c, int shared_bytes) {
  const Samples samples({1, 70, 3, 150, 64});
  const int rows = samples.rows();
  const int64_t q_count = int64_t{rows} * c.q_heads * c.dim;
  const int64_t kv_count = int64_t{rows} * c.kv_heads * c.dim;
  const int64_t heads = int64_t{rows} * c.q_heads;
  const auto q = numbers(q_count, 1, 1.0F), k = numbers(kv_count, 2, 1.0F),
             v = numbers(kv_count, 3, 1.0F), dmixed = numbers(q_count, 4, 1.0F);
  const GradientAttention shape{.rows = rows,
                                .q_heads = c.q_heads,
                                .kv_heads = c.kv_heads,
                                .head_dim = c.dim,
                                .shared_bytes = shared_bytes,
                                .samples = to_device(samples.of_row)};
  const AttentionRows on_card{to_device(q), to_device(k), to_device(v)};
  auto* mixed = device_array<float>(q_count);
  auto* log_sum = device_array<float>(heads);
  const AttentionBack back{.mixed = mixed,
                           .log_sum = log_sum,
                           .dmixed = to_device(dmixed),
                           .along = device_array<float>(heads),
                           .dq = device_array<float>(q_count),
                           .dk = device_array<float>(kv_count),
                           .dv = device_array<float>(kv_count)};
  must(attend_forward(shape, on_card, mixed, log_sum, nullptr), "attention forward");
  must(attend_backward(shape, on_card, back, nullptr), "attention backward");
  std::vector<double> want_mixed(q_count), want_dq(q_count), want_dk(kv_count), want_dv(kv_count),
      want_log(heads);
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.dim));
  for (int row = 0; row < rows; ++row)
    for (int head = 0; head < c.q_heads; ++head) {
      const int begin = samples.of_row[row].begin, kv = head / (c.q_heads / c.kv_heads);
      const int64_t at_q = (int64_t{row} * c.q_heads + head) * c.dim;
      const auto at_kv = [&](int t) { return (int64_t{t} * c.kv_heads + kv) * c.dim; };
      std::vector<double> p(row - begin + 1), dp(row - begin + 1);
      double most = -1e300, total = 0, along = 0;
      for (int t = begin; t <= row; ++t) {
        double score = 0;
        for (int i = 0; i < c.dim; ++i) {
          score += static_cast<double>(q[at_q + i]) * k[at_kv(t) + i];
          dp[t - begin] += static_cast<double>(dmixed[at_q + i]) * v[at_kv(t) + i];
        }
        p[t - begin] = scale * score;
        most = std::max(most, p[t - begin]);
      }
      for (double& one : p) total += std::exp(one - most);
      want_log[int64_t{row} * c.q_heads + head] = most + std::log(total);
      for (size_t t = 0; t < p.size(); ++t) {
        p[t] = std::exp(p[t] - most) / total;
        along += p[t] * dp[t];
      }
      for (int t = begin; t <= row; ++t) {
        const double one = p[t - begin], ds = scale * one * (dp[t - begin] - along);
        for (int i = 0; i < c.dim; ++i) {
          want_mixed[at_q + i] += one * v[at_kv(t) + i];
          want_dq[at_q + i] += ds * k[at_kv(t) + i];
          want_dk[at_kv(t) + i] += ds * q[at_q + i];
          want_dv[at_kv(t) + i] += one * dmixed[at_q + i];
        }
      }
    }
  const std::string name = "attention of " + std::to_string(c.dim) + ", " +
                           std::to_string(shared_bytes) + " bytes shared: ";
  const auto compare = [&](const char* part, const float* from, const std::vector<double>& want) {
    const auto found = to_host(from, static_cast<int64_t>(want.size()));
    Error error;
    for (size_t i = 0; i < want.size(); ++i) error.add(found[i], want[i]);
    tally.check(error.value() < kAttentionError, (name + part).c_str(), error.value());
  };
  compare("outputs", mixed, want_mixed);
  compare("logarithms", log_sum, want_log);
  compare("dq", back.dq, want_dq);
  compare("dk", back.dk, want_dk);
  compare("dv", back.dv, want_dv);
}

}  // namespace

void check_gradient_delta(Tally& tally) {
  for (const int shared_bytes : {232448, 166912, 101376})
    for (const DeltaCase& c :
         {DeltaCase{2, 4, 128, 128}, DeltaCase{1, 2, 32, 32}, DeltaCase{1, 1, 20, 12}})
      check_delta_case(tally, c, shared_bytes);
}

void check_gradient_attention(Tally& tally) {
  for (const int shared_bytes : {232448, 0})
    for (const AttentionCase& c : {AttentionCase{4, 2, 256}, AttentionCase{3, 1, 64},
                                   AttentionCase{2, 2, 128}, AttentionCase{2, 1, 40}})
      check_attention_case(tally, c, shared_bytes);
}

}  // namespace nibble::bench
