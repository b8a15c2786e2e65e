// The chunked delta rule against the recurrence in double, token by token: outputs, states and
// snapshots; bits equal however a prompt is cut at multiples of 64; timings at the 35B's shape.
#include <cstring>
#include <memory>
#include <string>

#include "backend/cuda/checks/card_checks.h"
#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/delta_net/delta_chunk_parts.cuh"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

constexpr int kSharedBytesSmall = 101376;
constexpr uint32_t kQkv = 1, kA = 2, kB = 3, kConv = 4, kALog = 5, kBias = 6, kState = 7,
                   kHistory = 8, kZ = 9, kNorm = 10;

__host__ __device__ float a_log_at(uint64_t h) { return 0.7F * hash_normal(kALog, h); }
__host__ __device__ float dt_bias_at(uint64_t h) { return 0.7F * hash_normal(kBias, h) - 2.5F; }

/// Inputs of `rows` rows and `slots` slots.
struct Inputs {
  DeltaShape shape;
  StateFormat format;
  int rows, slots;
  int64_t channels, values, out_columns, state_numbers;
  int64_t slot_floats, state_floats;  // of a slot, and of these those before the history
  DeltaPrefill in;

  Inputs(DeltaShape s, StateFormat f, int t, int slot_count)
      : shape(s), format(f), rows(t), slots(slot_count) {
    channels = s.qkv_rows();
    values = int64_t{s.v_heads} * s.v_dim;
    out_columns = (values + 63) / 64 * 64;  // packed order fills blocks of 64
    state_numbers = values * s.k_dim;
    state_floats = state_numbers * state_element_bytes(format) / 4;
    slot_floats = state_floats + 3 * channels;
    auto* qkv = device_array<uint16_t>(rows * channels);
    auto* z = device_array<uint16_t>(rows * values);
    auto* a = device_array<float>(rows * s.v_heads);
    auto* b = device_array<float>(rows * s.v_heads);
    auto* conv = device_array<float>(channels * 4);
    auto* a_log = device_array<float>(s.v_heads);
    auto* dt_bias = device_array<float>(s.v_heads);
    auto* norm = device_array<float>(s.v_dim);
    fill_normal(qkv, rows * channels, kQkv, 1.0F);
    fill_normal(z, rows * values, kZ, 1.0F);
    fill_normal(a, rows * s.v_heads, kA, 1.0F);
    fill_normal(b, rows * s.v_heads, kB, 1.0F);
    fill_normal(conv, channels * 4, kConv, 0.5F);
    fill_normal(a_log, s.v_heads, kALog, 0.7F);
    fill_normal(dt_bias, s.v_heads, kBias, 0.7F, -2.5F);
    fill_normal(norm, s.v_dim, kNorm, 0.2F, 1.0F);
    auto* slot = device_array<float>(slots * slot_floats);
    auto* out = device_array<uint16_t>(rows * out_columns);
    in = {.shape = s,
          .qkv = qkv,
          .qkv_stride = channels,
          .a = a,
          .b = b,
          .gate_stride = s.v_heads,
          .conv_weight = conv,
          .a_log = a_log,
          .dt_bias = dt_bias,
          .state = {.state = slot,
                    .conv = slot + state_floats,
                    .slot_stride = slot_floats,
                    .format = format},
          .z = z,
          .z_stride = values,
          .norm_weight = norm,
          .out = out,
          .out_stride = out_columns};
  }
  ~Inputs() {
    for (const void* p :
         {static_cast<const void*>(in.qkv), static_cast<const void*>(in.z),
          static_cast<const void*>(in.a), static_cast<const void*>(in.b),
          static_cast<const void*>(in.conv_weight), static_cast<const void*>(in.a_log),
          static_cast<const void*>(in.dt_bias), static_cast<const void*>(in.norm_weight),
          static_cast<const void*>(in.state.state), static_cast<const void*>(in.out)})
      cudaFree(const_cast<void*>(p));
  }
  /// Slot s holds state hash(kState, s * state_numbers + i) and the history alike.
  void reset_slots() {
    for (int s = 0; s < slots; ++s) {
      const int64_t states = state_numbers, history = 3 * channels;
      auto* state = static_cast<float*>(in.state.state) + s * slot_floats;
      float* conv = in.state.conv + s * slot_floats;
      const bool narrow = format == StateFormat::bf16;
      fill_kernel<<<256, 256>>>(
          [=] __device__(int64_t i) {
            const float x = 0.1F * hash_normal(kState, s * states + i);
            if (narrow)
              reinterpret_cast<uint16_t*>(state)[i] = to_bf16(x);
            else
              state[i] = x;
          },
          states);
      fill_kernel<<<256, 256>>>(
          [=] __device__(int64_t i) {
            conv[i] = round_bf16(hash_normal(kHistory, s * history + i));
          },
          history);
    }
    cudaMemset(in.out, 0xFF, static_cast<size_t>(rows * out_columns) * 2);
  }
  void launch(const Batch& batch, const Launcher& launcher) {
    const DeltaPlan plan = DeltaPlan::of(batch);
    auto* chunks = to_device(plan.chunks);
    auto* sequences = to_device(plan.sequences);
    auto* runs = to_device(plan.runs);
    DeltaPrefill run = in;
    run.chunks = chunks;
    run.sequences = sequences;
    run.runs = runs;
    run.groups = plan.groups;
    run.sequence_count = static_cast<int32_t>(plan.sequences.size());
    run.workspace = device_array<uint8_t>(delta_workspace_bytes(shape, kDeltaGroupChunks));
    delta_chunk_prepare(launcher);
    delta_prefill(run, launcher);
    must(cudaDeviceSynchronize(), "delta prefill");
    cudaFree(chunks);
    cudaFree(sequences);
    cudaFree(runs);
    cudaFree(run.workspace);
  }
  /// The number that a state of this format keeps in place of x.
  double kept(double x) const {
    return format == StateFormat::bf16 ? round_bf16(static_cast<float>(x)) : x;
  }
  /// Number i of the state of a slot among all slots on the host.
  double state_number(const std::vector<float>& all, int slot, int64_t i) const {
    const float* state = all.data() + slot * slot_floats;
    if (format == StateFormat::f32) return state[i];
    return bf16_value(reinterpret_cast<const uint16_t*>(state)[i]);
  }
};

/// One value head of one sequence in double.
struct Recurrence {
  const Inputs& inputs;
  int head;
  int slot;
  int row_begin;
  std::vector<double> state;  // [k, v]

  Recurrence(const Inputs& i, int h, int s, int row)
      : inputs(i), head(h), slot(s), row_begin(row), state(size_t(i.shape.k_dim) * i.shape.v_dim) {
    for (size_t e = 0; e < state.size(); ++e)
      state[e] = i.kept(0.1F * hash_normal(kState, s * i.state_numbers + h * state.size() + e));
  }
  void round() {
    for (double& number : state) number = inputs.kept(number);
  }
  double raw(int i, int64_t channel) const {
    if (i >= 0) return round_bf16(hash_normal(kQkv, (row_begin + i) * inputs.channels + channel));
    return round_bf16(
        hash_normal(kHistory, (int64_t{slot} * 3 + 3 + i) * inputs.channels + channel));
  }
  double convolved(int i, int64_t channel) const {
    double sum = 0.0;
    for (int j = 0; j < 4; ++j)
      sum += double{0.5F * hash_normal(kConv, channel * 4 + j)} * raw(i - 3 + j, channel);
    return silu_of(sum);
  }
  double rounded(int i, int64_t channel) const {
    return round_bf16(static_cast<float>(convolved(i, channel)));
  }
  std::vector<double> unit(int i, int64_t channel, double scale) const {
    std::vector<double> x(inputs.shape.k_dim);
    double squares = 0.0;
    for (size_t e = 0; e < x.size(); ++e) {
      x[e] = convolved(i, channel + e);
      squares += x[e] * x[e];
    }
    for (double& value : x) value *= scale / std::sqrt(squares + 1e-6);
    return x;
  }
  /// Gated and normed output of row i.
  std::vector<double> step(int i) {
    const DeltaShape& s = inputs.shape;
    const int k_head = head / (s.v_heads / s.k_heads);
    const auto q = unit(i, int64_t{k_head} * s.k_dim, 1.0 / std::sqrt(double(s.k_dim)));
    const auto k = unit(i, int64_t{s.k_heads + k_head} * s.k_dim, 1.0);
    const uint64_t at = uint64_t(row_begin + i) * s.v_heads + head;
    const double x = double{hash_normal(kA, at)} + dt_bias_at(head);
    const double alpha = std::exp(-std::exp(double{a_log_at(head)}) * std::log1p(std::exp(x)));
    const double beta = 1.0 / (1.0 + std::exp(-double{hash_normal(kB, at)}));
    std::vector<double> o(s.v_dim);
    double squares = 0.0;
    for (int j = 0; j < s.v_dim; ++j) {
      // As transformers: the convolution's result is BF16.
      const double v = rounded(i, 2 * int64_t{s.k_heads} * s.k_dim + int64_t{head} * s.v_dim + j);
      double prediction = 0.0;
      for (int e = 0; e < s.k_dim; ++e) prediction += alpha * state[e * s.v_dim + j] * k[e];
      const double u = beta * (v - prediction);
      for (int e = 0; e < s.k_dim; ++e) {
        double& cell = state[e * s.v_dim + j];
        cell = alpha * cell + k[e] * u;
        o[j] += cell * q[e];
      }
      squares += o[j] * o[j];
    }
    const double scale = 1.0 / std::sqrt(squares / s.v_dim + 1e-6);
    for (int j = 0; j < s.v_dim; ++j) {
      const int64_t column = int64_t{head} * s.v_dim + j;
      const double z = round_bf16(hash_normal(kZ, (row_begin + i) * inputs.values + column));
      o[j] *= scale * (0.2F * hash_normal(kNorm, j) + 1.0F) * silu_of(z);
    }
    return o;
  }
};

struct Sequences {
  std::vector<int> rows;
  std::vector<int> kv_begin;
};

/// Sequence i reads slot i and writes slot i (even) or slot n + i (odd); snapshots of row 63's
/// state where there is one go to slot 2n + i.
Batch make_batch(const Sequences& sequences) {
  Batch batch;
  const int n = static_cast<int>(sequences.rows.size());
  int row = 0;
  for (int i = 0; i < n; ++i) {
    batch.sequences.push_back({.row_begin = row,
                               .row_count = sequences.rows[i],
                               .kv_begin = sequences.kv_begin[i],
                               .state_in = i,
                               .state_out = i % 2 == 0 ? i : n + i});
    const int end = 64 - sequences.kv_begin[i] % 64;
    if (end < sequences.rows[i]) batch.snapshots.push_back({row + end - 1, 2 * n + i});
    row += sequences.rows[i];
  }
  batch.tokens.resize(row);
  return batch;
}

struct Run {
  Launcher launcher;
  StateFormat state = StateFormat::f32;
};

void compare(Tally& tally, const std::string& name, const DeltaShape& shape,
             const Sequences& sequences, const Run& with, std::vector<int> heads) {
  const Batch batch = make_batch(sequences);
  const int n = static_cast<int>(sequences.rows.size());
  Inputs inputs(shape, with.state, batch.rows(), 3 * n);
  inputs.reset_slots();
  inputs.launch(batch, with.launcher);
  const auto out = to_host(inputs.in.out, inputs.rows * inputs.out_columns);
  const auto slots =
      to_host(static_cast<const float*>(inputs.in.state.state), 3 * n * inputs.slot_floats);
  Error error, state_error, snapshot_error;
  double history = 0.0;
  snapshot_error.reference = 1e-300;
  for (int i = 0; i < n; ++i) {
    const BatchSequence& sequence = batch.sequences[i];
    const int snapshot = 64 - sequence.kv_begin % 64 - 1;
    for (const int head : heads) {
      Recurrence truth(inputs, head, i, sequence.row_begin);
      const size_t size = truth.state.size();
      for (int r = 0; r < sequence.row_count; ++r) {
        const auto o = truth.step(r);
        if (state_rounding_rows(sequence, r) == 1) truth.round();
        for (int j = 0; j < shape.v_dim; ++j)
          error.add(bf16_value(out[(sequence.row_begin + r) * inputs.out_columns +
                                   packed_position(head * shape.v_dim + j)]),
                    o[j]);
        if (r == snapshot && r + 1 < sequence.row_count)
          for (size_t e = 0; e < size; ++e)
            snapshot_error.add(inputs.state_number(slots, 2 * n + i, head * size + e),
                               truth.state[e]);
      }
      for (size_t e = 0; e < size; ++e)
        state_error.add(inputs.state_number(slots, sequence.state_out, head * size + e),
                        truth.state[e]);
      for (int64_t c = 0; c < inputs.channels; ++c)
        for (int j = 0; j < 3; ++j)
          history += std::fabs(slots[sequence.state_out * inputs.slot_floats + inputs.state_floats +
                                     j * inputs.channels + c] -
                               truth.raw(sequence.row_count - 3 + j, c));
    }
  }
  tally.check(error.value() < 4e-3, (name + " out").c_str(), error.value());
  tally.check(state_error.value() < 4e-3, (name + " state").c_str(), state_error.value());
  tally.check(snapshot_error.value() < 4e-3, (name + " snapshot").c_str(), snapshot_error.value());
  tally.check(history == 0.0, (name + " inputs kept").c_str(), history);
}

/// One pass over all rows against passes cut at multiples of 64, in place of one slot.
void cut(Tally& tally, const DeltaShape& shape, const Run& with) {
  constexpr int kRows = 64 * 5 + 17;
  Inputs inputs(shape, with.state, kRows, 3);
  const auto pass = [&](int begin, int end) {
    Batch batch;
    batch.tokens.resize(end - begin);
    batch.sequences.push_back({.row_begin = 0, .row_count = end - begin, .kv_begin = begin});
    DeltaPrefill saved = inputs.in;
    inputs.in.qkv += begin * inputs.channels;
    inputs.in.z += begin * inputs.values;
    inputs.in.a += begin * shape.v_heads;
    inputs.in.b += begin * shape.v_heads;
    inputs.in.out += begin * inputs.out_columns;
    inputs.launch(batch, with.launcher);
    inputs.in = saved;
  };
  const auto bits = [&] {
    auto out =
        to_host(reinterpret_cast<const uint16_t*>(inputs.in.out), kRows * inputs.out_columns);
    const auto slot =
        to_host(static_cast<const uint16_t*>(inputs.in.state.state), 2 * inputs.slot_floats);
    out.insert(out.end(), slot.begin(), slot.end());
    return out;
  };
  inputs.reset_slots();
  pass(0, kRows);
  const auto whole = bits();
  inputs.reset_slots();
  pass(0, 64);
  pass(64, 256);
  pass(256, kRows);
  int64_t different = 0;
  const auto parts = bits();
  for (size_t i = 0; i < whole.size(); ++i) different += whole[i] != parts[i];
  tally.check(different == 0, "cut at multiples of 64, to the bit", static_cast<double>(different));
}

void time_shape(Tally& tally, StateFormat state, int rows, int sequence_rows, int group_chunks) {
  const DeltaShape shape{.k_heads = 16, .v_heads = 32, .k_dim = 128, .v_dim = 128};
  const int n = rows / sequence_rows;
  const Batch batch = make_batch({std::vector<int>(n, sequence_rows), std::vector<int>(n, 0)});
  Inputs inputs(shape, state, rows, 3 * n);
  inputs.reset_slots();
  const DeltaPlan plan = DeltaPlan::of(batch, group_chunks);
  DeltaArgs args{.in = inputs.in, .group = plan.groups.front(), .work = {}};
  args.in.chunks = to_device(plan.chunks);
  args.in.sequences = to_device(plan.sequences);
  args.in.runs = to_device(plan.runs);
  args.in.groups = plan.groups;
  args.in.sequence_count = n;
  void* work = device_array<uint8_t>(delta_workspace_bytes(shape, group_chunks));
  DeviceCarver carver(static_cast<std::byte*>(work));
  args.work = DeltaWorkspace::carve(shape, args.group.chunk_count, carver);
  args.in.workspace = work;
  const Launcher launcher = launcher_of(Kernels::native).in_order();
  delta_chunk_prepare(launcher);
  tally.print(
      "time delta %d x %d, state of %d bits, a group of %d chunks: inputs %.1f, within %.1f, along "
      "%.1f, norm %.1f "
      "us",
      n, sequence_rows, static_cast<int>(8 * state_element_bytes(state)), args.group.chunk_count,
      time_us([&] { launch_delta_inputs(args, launcher); }),
      time_us([&] { launch_delta_within(args, launcher); }),
      time_us([&] { launch_delta_along(args, launcher); }),
      time_us([&] { launch_delta_outputs(args, launcher); }));
  tally.print("time delta %d x %d: all %.1f us", n, sequence_rows,
              time_us([&] { delta_prefill(args.in, launcher); }));
  cudaFree(work);
}

}  // namespace

TimedStep delta_step() {
  constexpr int kRows = 4096;
  const DeltaShape shape{.k_heads = 16, .v_heads = 32, .k_dim = 128, .v_dim = 128};
  const auto kept = std::make_shared<Inputs>(shape, StateFormat::f32, kRows, 3);
  kept->reset_slots();
  const auto plan = std::make_shared<const DeltaPlan>(DeltaPlan::of(make_batch({{kRows}, {0}})));
  DeltaPrefill run = kept->in;
  run.chunks = to_device(plan->chunks);
  run.sequences = to_device(plan->sequences);
  run.runs = to_device(plan->runs);
  run.groups = plan->groups;
  run.sequence_count = 1;
  run.workspace = device_array<uint8_t>(delta_workspace_bytes(shape, kDeltaGroupChunks));
  const Launcher launcher = launcher_of(Kernels::native).in_order();
  delta_chunk_prepare(launcher);
  return {.name = std::to_string(kRows) + " rows",
          .flops = 10.0 * kRows * shape.v_heads * shape.k_dim * shape.v_dim,
          .launch = [kept, plan, run, launcher] { delta_prefill(run, launcher); }};
}

void check_delta(Tally& tally) {
  const DeltaShape real{.k_heads = 16, .v_heads = 32, .k_dim = 128, .v_dim = 128};
  const DeltaShape pebble{.k_heads = 8, .v_heads = 16, .k_dim = 32, .v_dim = 32};
  const DeltaShape odd{.k_heads = 2, .v_heads = 6, .k_dim = 64, .v_dim = 128};
  const DeltaShape flat{.k_heads = 3, .v_heads = 3, .k_dim = 128, .v_dim = 32};
  const Sequences mixed{{200, 64, 7, 1, 130, 2, 90}, {0, 128, 64, 192, 0, 1, 30}};
  for (const StateFormat state : {StateFormat::f32, StateFormat::bf16}) {
    const Run native{launcher_of(Kernels::native), state};
    const std::string name = state == StateFormat::bf16 ? "BF16 state, " : "";
    compare(tally, name + "pebble mixed", pebble, mixed, native, {0, 5, 15});
    compare(tally, name + "odd mixed", odd, mixed, native, {0, 5});
    compare(tally, name + "flat mixed", flat, mixed, native, {0, 2});
    compare(tally, name + "35B mixed", real, mixed, native, {0, 31});
    compare(tally, name + "35B 1500 rows", real, {{1500}, {0}}, native, {7});
    cut(tally, real, native);
    cut(tally, pebble, native);
  }
  compare(tally, "35B mixed, 99 KB", real, mixed, {launcher_of(Kernels::native, kSharedBytesSmall)},
          {1});
}

void time_delta(Tally& tally) {
  for (const int group_chunks : {16, 32, 64, 128}) {
    time_shape(tally, StateFormat::f32, 8192, 8192, group_chunks);
    time_shape(tally, StateFormat::f32, 8192, 1024, group_chunks);
  }
  time_shape(tally, StateFormat::f32, 2048, 2048, kDeltaGroupChunks);
  time_shape(tally, StateFormat::bf16, 8192, 8192, kDeltaGroupChunks);
}

}  // namespace nibble::checks
