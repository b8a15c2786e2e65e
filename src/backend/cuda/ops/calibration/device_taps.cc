// The inputs that are wanted, and the memory of their sums.
#include "backend/cuda/ops/calibration/device_taps.h"

#include <algorithm>
#include <functional>

namespace nibble::cuda {
namespace {

constexpr std::string_view kWhat = "sums of calibration";

MomentKind kind_of(SecondMoment kind) {
  return kind == SecondMoment::diagonal ? MomentKind::diagonal
         : kind == SecondMoment::blocks ? MomentKind::blocks
                                        : MomentKind::full;
}

/// The buffer grows and never shrinks.
Result<void> fit(DeviceContext& device, DeviceBuffer& buffer, int64_t bytes) {
  if (buffer.bytes() >= bytes) return {};
  buffer = DeviceBuffer();
  buffer = TRY(DeviceBuffer::allocate(device, bytes, kWhat));
  return {};
}

/// True for an input whose sums stay on the card.
bool is_kept(const InputStatistics* wanted) {
  return wanted != nullptr && wanted->place == MomentPlace::device;
}

InputRows rows_of(const DeviceTaps::Input& input, int32_t cols) {
  return {.packed_x = reinterpret_cast<const uint16_t*>(input.x),
          .x_stride = input.stride,
          .x_rows = input.rows,
          .cols = cols,
          .assignments = input.rows};
}

}  // namespace

Result<void> DeviceTaps::reserve(DeviceContext& device, const ModelConfig& config, int64_t rows) {
  device_ = &device;
  experts_ = config.moe ? config.moe->experts : 0;
  const int64_t assignments = config.moe ? rows * config.moe->top_k : rows;
  row_amax_ = TRY(DeviceBuffer::allocate(device, assignments * int64_t{sizeof(float)}, kWhat));
  row_ = TRY(DeviceBuffer::allocate(device, assignments * int64_t{sizeof(int32_t)}, kWhat));
  segments_ = TRY(DeviceBuffer::allocate(device, experts_ * int64_t{sizeof(Segment)}, kWhat));
  return {};
}

void DeviceTaps::want(TapRole which, Taps& taps, const LinearSource& linear) {
  if (!linear.present()) return;
  Role& to = role(which);
  InputStatistics* wanted = taps.find(linear.module);
  to.wanted.push_back(wanted);
  to.cols = static_cast<int32_t>(linear.cols);
  if (wanted == nullptr || wanted->kind == SecondMoment::none) return;
  CHECK(to.kind == SecondMoment::none || to.kind == wanted->kind,
        "two kinds of sums: ", linear.module);
  to.kind = wanted->kind;
}

Result<void> DeviceTaps::begin(const LayerSources& layer, Taps& taps, cudaStream_t stream) {
  roles_ = {};
  want(TapRole::mixer_in, taps, layer.attention.q);
  want(TapRole::mixer_out, taps, layer.attention.o);
  want(TapRole::mixer_in, taps, layer.delta_net.qkv);
  want(TapRole::mixer_out, taps, layer.delta_net.out);
  const MlpSources& mlp = layer.dense_mlp.gate.present() ? layer.dense_mlp : layer.moe.shared;
  want(TapRole::mlp_in, taps, mlp.gate.present() ? mlp.gate : layer.moe.router);
  want(TapRole::mlp_down, taps, mlp.down);
  for (const MlpSources& expert : layer.moe.experts) {
    want(TapRole::expert_in, taps, expert.gate);
    want(TapRole::expert_down, taps, expert.down);
  }
  return place(stream);
}

Result<void> DeviceTaps::begin(InputStatistics& head, cudaStream_t stream) {
  roles_ = {};
  role(TapRole::mixer_in) = {
      .wanted = {&head}, .cols = static_cast<int32_t>(head.cols), .kind = head.kind};
  return place(stream);
}

/// moments_ becomes one that no taps hold.
Result<void> DeviceTaps::find_room(int64_t bytes) {
  if (moments_ != nullptr && moments_.use_count() > 1) std::swap(moments_, other_moments_);
  if (moments_ == nullptr || moments_.use_count() > 1) moments_ = std::make_shared<DeviceBuffer>();
  return fit(*device_, *moments_, bytes);
}

Result<void> DeviceTaps::place(cudaStream_t stream) {
  int64_t inputs = 0;
  int64_t doubles = 0;
  int64_t squares = 0;          // of the role with the most that are kept
  std::vector<int64_t> places;  // index of each input's moments; -1: none
  for (Role& one : roles_) {
    one.first = inputs;
    inputs += static_cast<int64_t>(one.wanted.size());
    for (const InputStatistics* wanted : one.wanted) {
      const int64_t count = wanted == nullptr ? 0 : moment_count(wanted->kind, wanted->cols);
      places.push_back(count == 0 ? -1 : doubles);
      doubles += count;
    }
    if (std::ranges::any_of(one.wanted, is_kept))
      squares = std::max(squares, std::ssize(one.wanted) * one.cols);
  }
  TRY(fit(*device_, seen_, inputs * int64_t{sizeof(SeenRows)}));
  TRY(fit(*device_, pointers_, inputs * int64_t{sizeof(double*)}));
  TRY(fit(*device_, squares_, squares * int64_t{sizeof(double)}));
  TRY(find_room(doubles * int64_t{sizeof(double)}));
  std::vector<double*> pointers;
  for (const int64_t place : places)
    pointers.push_back(place < 0 ? nullptr : moments_->as<double>() + place);
  if (inputs == 0) return {};
  CUDA_CHECK(
      cudaMemsetAsync(seen_.as<void>(), 0, static_cast<size_t>(inputs) * sizeof(SeenRows), stream));
  if (doubles > 0)
    CUDA_CHECK(cudaMemsetAsync(moments_->as<void>(), 0,
                               static_cast<size_t>(doubles) * sizeof(double), stream));
  CUDA_CHECK(cudaMemcpyAsync(pointers_.as<void>(), pointers.data(),
                             pointers.size() * sizeof(double*), cudaMemcpyHostToDevice, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));  // `pointers` ends here
  return {};
}

void DeviceTaps::sum(const Role& role, InputRows rows, cudaStream_t stream) const {
  rows.inputs = static_cast<int32_t>(role.wanted.size());
  const SumScratch scratch{.row_amax = row_amax_.as<float>(), .row = row_.as<int32_t>()};
  CUDA_CHECK(see_rows(rows, scratch, seen_.as<SeenRows>() + role.first, stream));
  if (role.kind == SecondMoment::none) return;
  CUDA_CHECK(
      add_moments(rows, scratch, kind_of(role.kind), pointers_.as<double*>() + role.first, stream));
}

void DeviceTaps::add(TapRole which, const Input& input, cudaStream_t stream) const {
  const Role& one = role(which);
  if (one.wanted.empty() || one.wanted.front() == nullptr) return;
  sum(one, rows_of(input, one.cols), stream);
}

void DeviceTaps::add_experts(const Input& in, const Input& down, const Routed& routed,
                             cudaStream_t stream) const {
  const auto asked = [](const Role& one) {
    return std::ranges::any_of(one.wanted, [](const auto* wanted) { return wanted != nullptr; });
  };
  const Role& in_role = role(TapRole::expert_in);
  const Role& down_role = role(TapRole::expert_down);
  if (!asked(in_role) && !asked(down_role)) return;
  const auto tiles = static_cast<int32_t>(route_tiles_max(routed.assignments, experts_));
  CUDA_CHECK(expert_segments(routed.tiles, routed.tile_count, tiles, experts_,
                             segments_.as<Segment>(), stream));
  if (asked(in_role)) {
    InputRows rows = rows_of(in, in_role.cols);
    rows.gather = routed.token;
    rows.segments = segments_.as<Segment>();
    rows.assignments = routed.assignments;
    sum(in_role, rows, stream);
  }
  if (!asked(down_role)) return;
  InputRows rows = rows_of(down, down_role.cols);
  rows.segments = segments_.as<Segment>();
  sum(down_role, rows, stream);
}

/// The sums of a role's inputs, which begin at `from`.
void DeviceTaps::fetch_sums(const Role& role, const double*& from, cudaStream_t stream) {
  std::vector<double> squares;
  if (std::ranges::any_of(role.wanted, is_kept)) {
    squares.resize(role.wanted.size() * static_cast<size_t>(role.cols));
    CUDA_CHECK(copy_squares(pointers_.as<double*>() + role.first,
                            static_cast<int32_t>(role.wanted.size()), role.cols,
                            squares_.as<double>(), stream));
    CUDA_CHECK(cudaMemcpyAsync(squares.data(), squares_.as<void>(), squares.size() * sizeof(double),
                               cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
  }
  for (size_t i = 0; i < role.wanted.size(); ++i) {
    InputStatistics* to = role.wanted[i];
    if (to == nullptr || to->kind == SecondMoment::none) continue;
    if (is_kept(to)) {
      CHECK(to->kept == nullptr, "sums that are kept come from one run");
      to->kept = std::shared_ptr<const double>(moments_, from);
      std::copy_n(squares.begin() + static_cast<ptrdiff_t>(i) * role.cols, role.cols,
                  to->moment.begin());
    } else {
      std::vector<double> sums(to->moment.size());
      CUDA_CHECK(
          cudaMemcpy(sums.data(), from, sums.size() * sizeof(double), cudaMemcpyDeviceToHost));
      std::ranges::transform(to->moment, sums, to->moment.begin(), std::plus<>());
    }
    from += moment_count(to->kind, to->cols);
  }
}

void DeviceTaps::fetch(cudaStream_t stream) {
  std::vector<SeenRows> seen;
  for (const Role& one : roles_) seen.resize(seen.size() + one.wanted.size());
  if (seen.empty()) return;
  CUDA_CHECK(cudaMemcpyAsync(seen.data(), seen_.as<void>(), seen.size() * sizeof(SeenRows),
                             cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  const double* from = moments_->as<double>();
  auto next = seen.begin();
  for (const Role& one : roles_) {
    for (InputStatistics* to : one.wanted) {
      const SeenRows& rows = *next++;
      if (to == nullptr) continue;
      to->amax = std::max(to->amax, static_cast<float>(rows.amax));
      to->tokens += rows.sound;
      to->bad_tokens += rows.bad;
    }
    fetch_sums(one, from, stream);
  }
}

}  // namespace nibble::cuda
