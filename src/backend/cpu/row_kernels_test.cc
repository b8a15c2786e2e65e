// Norms, gates, convolution, softmax, delta rule and attention against double arithmetic, and equal
// bits on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "backend/cpu/isa.h"
#include "backend/cpu/pools.h"
#include "backend/cpu/random_weights.h"

namespace nibble::cpu {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// Runs f on every instruction set and expects equal bits; returns them.
std::vector<float> on_every_isa(const std::function<std::vector<float>(const KernelTable&)>& f) {
  std::vector<float> first;
  for (const KernelTable* kernels : usable_kernels()) {
    const std::vector<float> out = f(*kernels);
    if (first.empty()) first = out;
    EXPECT_TRUE(same_bits(out, first)) << kernels->isa;
  }
  return first;
}

void expect_near(const std::vector<float>& found, const std::vector<double>& wanted, double bound) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], bound * std::max(1.0, std::fabs(wanted[i]))) << "at " << i;
}

const std::vector<int> kLengths = {1, 5, 15, 16, 17, 33, 64, 100, 256};

TEST(RowKernels, LayerNormAndBiases) {
  RandomWeights random(12);
  for (const int n : kLengths) {
    const auto x = random.values(n, -3.0F, 5.0F);
    const auto w = random.values(n);
    const auto b = random.values(n);
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
    double variance = 0.0;
    for (const float v : x) variance += (v - mean) * (v - mean) / n;
    std::vector<double> normed;
    std::vector<double> shifted;
    for (size_t i = 0; i < x.size(); ++i) {
      normed.push_back((x[i] - mean) / std::sqrt(variance + 1e-6) * w[i] + b[i]);
      shifted.push_back(double{x[i]} + b[i]);
    }
    std::vector<float> y(x.size());
    const NormRow row = {.x = x.data(), .w = w.data(), .y = y.data(), .n = n, .eps = 1e-6F};
    const auto found =
        on_every_isa([&](const KernelTable& k) { return k.layer_norm(row, b.data()), y; });
    // One value alone is its own mean: what is left of it is rounding, 1e3 times as large.
    expect_near(found, normed, n == 1 ? 1e-3 : 3e-6);
    expect_near(on_every_isa([&](const KernelTable& k) {
                  y = x;
                  k.add_bias(y.data(), b.data(), n);
                  return y;
                }),
                shifted, 1e-6);
  }
}

TEST(RowKernels, GeluByTanhAndByErf) {
  std::vector<float> x;
  for (int i = -1200; i <= 1200; ++i) x.push_back(static_cast<float>(i) / 100.0F);
  const std::vector<float> bias(x.size(), 0.125F);
  std::vector<double> by_tanh;
  std::vector<double> by_erf;
  for (const float v : x) {
    const double z = double{v} + 0.125;
    by_tanh.push_back(0.5 * z * (1.0 + std::tanh(0.7978845608028654 * (z + 0.044715 * z * z * z))));
    by_erf.push_back(0.5 * z * (1.0 + std::erf(z * 0.7071067811865476)));
  }
  const auto run = [&](auto member) {
    return on_every_isa([&](const KernelTable& k) {
      std::vector<float> y = x;
      (k.*member)(y.data(), bias.data(), static_cast<int>(y.size()));
      return y;
    });
  };
  expect_near(run(&KernelTable::gelu_tanh), by_tanh, 5e-7);
  expect_near(run(&KernelTable::gelu_exact), by_erf, 5e-7);
}

TEST(RowKernels, Norms) {
  RandomWeights random(11);
  for (const int n : kLengths) {
    const auto x = random.values(n, -3.0F, 3.0F);
    const auto w = random.values(n);
    const auto z = random.values(n, -20.0F, 20.0F);
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    std::vector<double> normed;
    std::vector<double> gated;
    std::vector<double> unit;
    for (size_t i = 0; i < x.size(); ++i) {
      normed.push_back(x[i] / std::sqrt(squares / n + 1e-6) * w[i]);
      gated.push_back(normed[i] * z[i] * sigmoid(z[i]));
      unit.push_back(x[i] * 0.25 / std::sqrt(squares + 1e-6));
    }
    std::vector<float> y(x.size());
    const NormRow row = {.x = x.data(), .w = w.data(), .y = y.data(), .n = n, .eps = 1e-6F};
    expect_near(on_every_isa([&](const KernelTable& k) { return k.rms_norm(row), y; }), normed,
                1e-6);
    expect_near(on_every_isa([&](const KernelTable& k) {
                  k.gated_norm(row, z.data());
                  return y;
                }),
                gated, 2e-6);
    expect_near(on_every_isa([&](const KernelTable& k) {
                  y = x;
                  k.l2_norm(y.data(), n, 1e-6F, 0.25F);
                  return y;
                }),
                unit, 1e-6);
  }
}

TEST(RowKernels, GatesOverTheWholeRange) {
  RandomWeights random(12);
  for (const int n : kLengths) {
    auto gate = random.values(n, -30.0F, 30.0F);
    gate[0] = -200.0F;  // exp overflows
    gate[static_cast<size_t>(n) - 1] = 200.0F;
    const auto up = random.values(n);
    std::vector<double> swiglu;
    std::vector<double> gated;
    for (size_t i = 0; i < up.size(); ++i) {
      swiglu.push_back(gate[i] * sigmoid(gate[i]) * up[i]);
      gated.push_back(up[i] * sigmoid(gate[i]));
    }
    std::vector<float> y(up.size());
    expect_near(on_every_isa([&](const KernelTable& k) {
                  k.swiglu(gate.data(), up.data(), y.data(), n);
                  return y;
                }),
                swiglu, 1e-6);
    expect_near(on_every_isa([&](const KernelTable& k) {
                  y = up;
                  k.sigmoid_gate(y.data(), gate.data(), n);
                  return y;
                }),
                gated, 1e-6);
  }
}

TEST(RowKernels, NanIsNotHidden) {
  for (const KernelTable* kernels : usable_kernels()) {
    std::vector<float> gate(20, 0.5F);
    gate[18] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> up(20, 1.0F);
    std::vector<float> y(20);
    kernels->swiglu(gate.data(), up.data(), y.data(), 20);
    EXPECT_TRUE(std::isnan(y[18])) << kernels->isa;
    EXPECT_FALSE(std::isnan(y[17]));
    kernels->softmax(gate.data(), y.data(), 20);
    EXPECT_TRUE(std::isnan(y[0])) << kernels->isa;
  }
}

TEST(RowKernels, ConvolutionSoftmaxAndWeightedSum) {
  RandomWeights random(13);
  for (const int n : kLengths) {
    const auto x = random.values(4 * n, -2.0F, 2.0F);
    const auto w = random.values(4 * n);
    const float* taps[4];
    for (int j = 0; j < 4; ++j) taps[j] = &x[static_cast<size_t>(j * n)];
    std::vector<double> conv;
    std::vector<double> sums;
    std::vector<double> p;
    double total = 0.0;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      double c = 0.0;
      double s = 0.0;
      for (size_t j = 0; j < 4; ++j) {
        c += double{x[j * static_cast<size_t>(n) + i]} * w[j * static_cast<size_t>(n) + i];
        s += double{x[j * static_cast<size_t>(n) + i]} * w[j];
      }
      conv.push_back(c * sigmoid(c));
      sums.push_back(1.0 + s);
      p.push_back(std::exp(40.0 * x[i]));
      total += p.back();
    }
    for (double& value : p) value /= total;
    std::vector<float> y(static_cast<size_t>(n));
    expect_near(on_every_isa([&](const KernelTable& k) {
                  k.conv_silu(taps, w.data(), 4, y.data(), n);
                  return y;
                }),
                conv, 1e-6);
    if (n >= 4) {
      expect_near(on_every_isa([&](const KernelTable& k) {
                    std::fill(y.begin(), y.end(), 1.0F);
                    k.add_weighted(y.data(), taps, w.data(), 4, n);
                    return y;
                  }),
                  sums, 1e-6);
    }
    std::vector<float> logits(x.begin(), x.begin() + n);
    for (float& value : logits) value *= 40.0F;
    expect_near(on_every_isa([&](const KernelTable& k) {
                  k.softmax(logits.data(), y.data(), n);
                  return y;
                }),
                p, 1e-5);
  }
}

struct DeltaCase {
  int rows, k_dim, v_dim;
};

TEST(RowKernels, DeltaRuleAndItsPieces) {
  RandomWeights random(14);
  for (const DeltaCase& c :
       {DeltaCase{9, 8, 12}, {6, 32, 32}, {5, 20, 81}, {4, 128, 128}, {7, 3, 112}, {4, 132, 70}}) {
    const int stride = 2 * c.k_dim + c.v_dim;
    const auto qkv = random.values(int64_t{c.rows} * stride, -0.3F, 0.3F);
    const auto alpha = random.values(c.rows, 0.5F, 1.0F);
    const auto beta = random.values(c.rows, 0.0F, 1.0F);
    const auto start = random.values(int64_t{c.k_dim} * c.v_dim);
    const auto run = [&](const KernelTable& kernels, int piece) {
      std::vector<float> state = start;
      std::vector<float> out(static_cast<size_t>(c.rows * c.v_dim));
      for (int row = 0; row < c.rows; row += piece) {
        const float* at = &qkv[static_cast<size_t>(row * stride)];
        kernels.delta_rule({.rows = std::min(piece, c.rows - row),
                            .k_dim = c.k_dim,
                            .v_dim = c.v_dim,
                            .q = at,
                            .k = at + c.k_dim,
                            .v = at + 2 * c.k_dim,
                            .qkv_stride = stride,
                            .alpha = &alpha[static_cast<size_t>(row)],
                            .beta = &beta[static_cast<size_t>(row)],
                            .gate_stride = 1,
                            .out = &out[static_cast<size_t>(row * c.v_dim)],
                            .out_stride = c.v_dim,
                            .state = state.data()});
      }
      out.insert(out.end(), state.begin(), state.end());
      return out;
    };
    std::vector<double> wanted;
    std::vector<double> state(start.begin(), start.end());
    for (int row = 0; row < c.rows; ++row) {
      const float* q = &qkv[static_cast<size_t>(row * stride)];
      const float* k = q + c.k_dim;
      const float* v = k + c.k_dim;
      for (double& s : state) s *= alpha[static_cast<size_t>(row)];
      for (int j = 0; j < c.v_dim; ++j) {
        double predicted = 0.0;
        for (int i = 0; i < c.k_dim; ++i)
          predicted += state[static_cast<size_t>(i * c.v_dim + j)] * k[i];
        const double u = beta[static_cast<size_t>(row)] * (v[j] - predicted);
        double o = 0.0;
        for (int i = 0; i < c.k_dim; ++i) {
          double& s = state[static_cast<size_t>(i * c.v_dim + j)];
          s += k[i] * u;
          o += s * q[i];
        }
        wanted.push_back(o);
      }
    }
    wanted.insert(wanted.end(), state.begin(), state.end());
    const auto whole = on_every_isa([&](const KernelTable& k) { return run(k, c.rows); });
    expect_near(whole, wanted, 3e-6);
    EXPECT_TRUE(same_bits(run(*usable_kernels().front(), 1), whole));
    EXPECT_TRUE(same_bits(run(*usable_kernels().front(), 4), whole));
  }
}

/// A cache of scattered pages, NaN wherever no key was written. k and v are as the format has them.
struct AttentionFixture {
  int head_dim;
  int keys;
  KvFormat format;
  std::vector<int32_t> pages;
  std::vector<std::byte> cache;
  std::vector<float> k, v, q;
  int64_t side_bytes(KvSide side) const { return 64 * kv_line_bytes(format, side, head_dim); }
  int64_t k_offset() const { return side_bytes(KvSide::keys); }
  int64_t v_offset() const { return 2 * side_bytes(KvSide::keys); }
  int64_t stride() const { return v_offset() + side_bytes(KvSide::values); }
  std::byte* page_of(int token) {
    return &cache[static_cast<size_t>(pages[static_cast<size_t>(token / 64)] * stride())];
  }

  AttentionFixture(RandomWeights& random, int dim, int key_count, KvFormat kept)
      : head_dim(dim),
        keys(key_count),
        format(kept),
        k(random.values(int64_t{keys} * dim)),
        v(random.values(int64_t{keys} * dim)),
        q(random.values(int64_t{5} * dim, -3.0F, 3.0F)) {
    const int count = (keys + 63) / 64;
    for (int p = 0; p < count; ++p) pages.push_back((p * 7 + 3) % (count * 7 + 1));
    cache.assign(static_cast<size_t>((count * 7 + 1) * stride()), std::byte{0xFF});
    const auto size = static_cast<size_t>(dim);
    for (int t = 0; t < keys; ++t) {
      const std::span key(&k[static_cast<size_t>(t) * size], size);
      const std::span value(&v[static_cast<size_t>(t) * size], size);
      put(t, key, value);
      kv_keep(format, KvSide::keys, key, key.data());
      kv_keep(format, KvSide::values, value, value.data());
    }
  }

  void put(int t, std::span<const float> key, std::span<const float> value) {
    kv_store(format, KvSide::keys, key,
             key_place(format, page_of(t) + k_offset(), head_dim, t % 64));
    kv_store(format, KvSide::values, value,
             value_place(format, page_of(t) + v_offset(), head_dim, t % 64));
  }

  int visible(int query) const { return std::max(1, keys - 3 * query); }

  std::vector<float> attend(const KernelTable& kernels, int tile) const {
    std::vector<float> out(q.size(), -9.0F);
    for (int begin = 0; begin < 5; begin += tile) {
      AttentionTile args = {.queries = std::min(tile, 5 - begin),
                            .head_dim = head_dim,
                            .scale = 0.2F,
                            .format = format,
                            .pages = pages.data(),
                            .cache = cache.data(),
                            .page_stride = stride(),
                            .k_offset = k_offset(),
                            .v_offset = v_offset()};
      for (int i = 0; i < args.queries; ++i) {
        args.q[i] = &q[static_cast<size_t>((begin + i) * head_dim)];
        args.out[i] = &out[static_cast<size_t>((begin + i) * head_dim)];
        args.visible[i] = visible(begin + i);
      }
      kernels.attention(args);
    }
    return out;
  }

  std::vector<double> wanted() const {
    std::vector<double> out;
    for (int i = 0; i < 5; ++i) {
      std::vector<double> p;
      for (int t = 0; t < visible(i); ++t) {
        double dot = 0.0;
        for (int d = 0; d < head_dim; ++d)
          dot += double{q[static_cast<size_t>(i * head_dim + d)]} *
                 k[static_cast<size_t>(t * head_dim + d)];
        p.push_back(std::exp(0.2 * dot));
      }
      const double total = std::accumulate(p.begin(), p.end(), 0.0);
      for (int d = 0; d < head_dim; ++d) {
        double sum = 0.0;
        for (size_t t = 0; t < p.size(); ++t)
          sum += p[t] / total * v[t * static_cast<size_t>(head_dim) + static_cast<size_t>(d)];
        out.push_back(sum);
      }
    }
    return out;
  }
};

constexpr KvFormat kFormats[] = {KvFormat::f32, KvFormat::bf16, KvFormat::fp8,
                                 KvFormat::turboquant_4bit_nc, KvFormat::nvfp4};
static_assert(std::size(kFormats) == kKvFormats);

/// Head sizes that a format has: of whole vectors and not, of whole panels and not.
std::vector<int> head_sizes(KvFormat format) {
  if (kv_traits(format).rotates) return {16, 32, 64, 256};
  if (kv_traits(format).dim_multiple == 16) return {16, 48, 64, 80, 256};
  return {12, 20, 64, 80, 256};
}

TEST(RowKernels, AttentionOverScatteredPages) {
  RandomWeights random(15);
  for (const KvFormat format : kFormats)
    for (const int dim : head_sizes(format))
      for (const int keys : {1, 17, 64, 65, 200, 333}) {
        const AttentionFixture fixture(random, dim, keys, format);
        const auto one_by_one =
            on_every_isa([&](const KernelTable& k) { return fixture.attend(k, 1); });
        expect_near(one_by_one, fixture.wanted(), 2e-6);
        for (const KernelTable* kernels : usable_kernels())
          EXPECT_TRUE(same_bits(fixture.attend(*kernels, kernels->queries_per_tile), one_by_one));
      }
}

/// All codes of E4M3 as values of one key: each comes out as it is, NaN as NaN.
TEST(RowKernels, EveryCodeOfAPage) {
  RandomWeights random(16);
  for (const KernelTable* kernels : usable_kernels())
    for (int first = 0; first < 256; first += 64) {
      AttentionFixture fixture(random, 64, 1, KvFormat::fp8);
      std::byte* values = fixture.page_of(0) + fixture.v_offset();
      for (int d = 0; d < 64; ++d) values[d] = static_cast<std::byte>(first + d);
      const std::vector<float> out = fixture.attend(*kernels, 1);
      for (int d = 0; d < 64; ++d) {
        const float wanted = e4m3_to_float(static_cast<uint8_t>(first + d));
        const float found = out[static_cast<size_t>(d)];
        EXPECT_TRUE(std::isnan(wanted) ? std::isnan(found) : found == wanted)
            << kernels->isa << ", code " << first + d << ": " << found;
      }
    }
}

TEST(RowKernels, ANanKeyOrValueIsLoud) {
  RandomWeights random(17);
  for (const KvFormat format : kFormats)
    for (const KvSide side : {KvSide::keys, KvSide::values})
      for (const KernelTable* kernels : usable_kernels()) {
        AttentionFixture fixture(random, 32, 40, format);
        const std::vector<float> line(32, 0.5F);
        std::vector<float> bad = line;
        bad[0] = std::numeric_limits<float>::quiet_NaN();
        fixture.put(7, side == KvSide::keys ? bad : line, side == KvSide::keys ? line : bad);
        EXPECT_TRUE(std::isnan(fixture.attend(*kernels, 1)[0]))
            << kernels->isa << ", " << kv_traits(format).name;
      }
}

}  // namespace
}  // namespace nibble::cpu
