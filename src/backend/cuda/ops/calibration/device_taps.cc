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

/// True for an input whose sums stay on the card.
bool is_kept(const InputStatistics* wanted) {
  return wanted != nullptr && wanted->place == MomentPlace::device;
}

/// The numbers of the widest input of a pass, or of those of all experts.
int64_t weighed_numbers(const ModelConfig& config, int64_t rows) {
  const int64_t heads = int64_t{config.attention.q_heads} * config.attention.head_dim;
  const int64_t mixer = std::max<int64_t>({config.hidden, heads, config.delta_net.z_rows()});
  if (!config.moe) return rows * weighed_stride(std::max<int64_t>(mixer, config.dense_width));
  const MoeConfig& moe = *config.moe;
  const int64_t expert = std::max(config.hidden, moe.expert_width);
  return std::max(rows * weighed_stride(std::max<int64_t>(mixer, moe.shared_width)),
                  rows * moe.top_k * weighed_stride(expert));
}

InputRows rows_of(const DeviceTaps::Input& input, int32_t cols) {
  return {.packed_x = reinterpret_cast<const uint16_t*>(input.x),
          .x_stride = input.stride,
          .x_rows = input.rows,
          .cols = cols,
          .assignments = input.rows};
}

}  // namespace

Result<void> DeviceTaps::reserve(DeviceContext& device, const ModelConfig& config, int64_t rows,
                                 Tokens tokens) {
  device_ = &device;
  experts_ = config.moe ? config.moe->experts : 0;
  const int64_t assignments = config.moe ? rows * config.moe->top_k : rows;
  row_amax_ = TRY(DeviceBuffer::allocate(device, assignments * int64_t{sizeof(float)}, kWhat));
  row_ = TRY(DeviceBuffer::allocate(device, assignments * int64_t{sizeof(int32_t)}, kWhat));
  segments_ = TRY(DeviceBuffer::allocate(device, experts_ * int64_t{sizeof(Segment)}, kWhat));
  if (tokens == Tokens::alike) return {};
  weighed_x_ =
      TRY(DeviceBuffer::allocate(device, weighed_numbers(config, rows) * int64_t{2}, kWhat));
  weighed_row_ = TRY(DeviceBuffer::allocate(device, assignments * int64_t{sizeof(int32_t)}, kWhat));
  return {};
}

void DeviceTaps::want(Role& to, Taps& taps, const LinearSource& linear) {
  if (!linear.present()) return;
  InputStatistics* wanted = taps.find(linear.module);
  to.wanted.push_back(wanted);
  to.cols = static_cast<int32_t>(linear.cols);
  if (wanted == nullptr || wanted->kind == SecondMoment::none) return;
  CHECK(to.kind == SecondMoment::none || to.kind == wanted->kind,
        "two kinds of sums: ", linear.module);
  to.kind = wanted->kind;
  to.weighed = to.weighed || wanted->weights != nullptr;
}

/// Those that are not present have no place.
void DeviceTaps::want(TapRole which, Taps& taps,
                      std::initializer_list<const LinearSource*> linears) {
  size_t at = static_cast<size_t>(which) * kRoleLinears;
  for (const LinearSource* linear : linears) want(roles_[at++], taps, *linear);
}

Result<void> DeviceTaps::begin(const LayerSources& layer, Taps& taps, cudaStream_t stream) {
  roles_ = {};
  const AttentionSources& a = layer.attention;
  const DeltaNetSources& d = layer.delta_net;
  if (a.q.present()) {
    want(TapRole::mixer_in, taps, {&a.q, &a.k, &a.v});
    want(TapRole::mixer_out, taps, {&a.o});
  } else {
    want(TapRole::mixer_in, taps, {&d.qkv, &d.z, &d.b, &d.a});
    want(TapRole::mixer_out, taps, {&d.out});
  }
  const MlpSources& mlp = layer.dense_mlp.gate.present() ? layer.dense_mlp : layer.moe.shared;
  want(TapRole::mlp_in, taps, {mlp.gate.present() ? &mlp.gate : &layer.moe.router, &mlp.up});
  want(TapRole::mlp_down, taps, {&mlp.down});
  for (const MlpSources& expert : layer.moe.experts) {
    want(TapRole::expert_in, taps, {&expert.gate, &expert.up});
    want(TapRole::expert_down, taps, {&expert.down});
  }
  return place(stream);
}

Result<void> DeviceTaps::begin(InputStatistics& head, cudaStream_t stream) {
  roles_ = {};
  roles_[static_cast<size_t>(TapRole::mixer_in) * kRoleLinears] = {
      .wanted = {&head},
      .cols = static_cast<int32_t>(head.cols),
      .kind = head.kind,
      .weighed = head.weights != nullptr};
  return place(stream);
}

/// moments_ becomes one that no taps hold.
Result<void> DeviceTaps::find_room(int64_t bytes) {
  if (moments_ != nullptr && moments_.use_count() > 1) std::swap(moments_, other_moments_);
  if (moments_ == nullptr || moments_.use_count() > 1) moments_ = std::make_shared<DeviceBuffer>();
  return grow(*device_, *moments_, bytes);
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
  TRY(grow(*device_, seen_, inputs * int64_t{sizeof(SeenRows)}));
  TRY(grow(*device_, pointers_, inputs * int64_t{sizeof(double*)}));
  TRY(grow(*device_, squares_, squares * int64_t{sizeof(double)}));
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
  return std::ranges::any_of(roles_, &Role::weighed) ? place_weights(stream) : Result<void>{};
}

Result<void> DeviceTaps::place_weights(cudaStream_t stream) {
  std::vector<const TokenWeights*> inputs;
  for (const Role& one : roles_)
    for (const InputStatistics* wanted : one.wanted)
      inputs.push_back(wanted == nullptr ? nullptr : wanted->weights);
  return weights_.place(*device_, inputs, stream);
}

/// `pass_row`: of each assignment; nullptr: the assignment itself.
void DeviceTaps::sum(const Role& role, InputRows rows, const int32_t* pass_row,
                     cudaStream_t stream) const {
  rows.inputs = static_cast<int32_t>(role.wanted.size());
  SumScratch scratch{.row_amax = row_amax_.as<float>(), .row = row_.as<int32_t>()};
  CUDA_CHECK(see_rows(rows, scratch, seen_.as<SeenRows>() + role.first, stream));
  if (role.kind == SecondMoment::none) return;
  if (role.weighed) {
    const WeighedRows to{.weights = weights_.inputs() + role.first,
                         .pass_row = pass_row,
                         .first_token = first_token_,
                         .x = weighed_x_.as<uint16_t>(),
                         .row = weighed_row_.as<int32_t>()};
    CUDA_CHECK(weigh_rows(rows, scratch, to, stream));
    rows.packed_x = to.x;
    rows.x_stride = weighed_stride(rows.cols);
    scratch.row = to.row;
  }
  CUDA_CHECK(
      add_moments(rows, scratch, kind_of(role.kind), pointers_.as<double*>() + role.first, stream));
}

void DeviceTaps::add(TapRole which, const Input& input, cudaStream_t stream) const {
  for (const Role& one : linears(which))
    if (!one.wanted.empty() && one.wanted.front() != nullptr)
      sum(one, rows_of(input, one.cols), nullptr, stream);
}

void DeviceTaps::add_experts(const Input& in, const Input& down, const Routed& routed,
                             cudaStream_t stream) const {
  const auto asked = [](const Role& one) {
    return std::ranges::any_of(one.wanted, [](const auto* wanted) { return wanted != nullptr; });
  };
  const auto in_roles = linears(TapRole::expert_in), down_roles = linears(TapRole::expert_down);
  if (std::ranges::none_of(in_roles, asked) && std::ranges::none_of(down_roles, asked)) return;
  const auto tiles = static_cast<int32_t>(route_tiles_max(routed.assignments, experts_));
  CUDA_CHECK(expert_segments(routed.tiles, routed.tile_count, tiles, experts_,
                             segments_.as<Segment>(), stream));
  for (const Role& role : in_roles) {
    if (!asked(role)) continue;
    InputRows rows = rows_of(in, role.cols);
    rows.gather = routed.token;
    rows.segments = segments_.as<Segment>();
    rows.assignments = routed.assignments;
    sum(role, rows, routed.token, stream);
  }
  for (const Role& role : down_roles) {
    if (!asked(role)) continue;
    InputRows rows = rows_of(down, role.cols);
    rows.segments = segments_.as<Segment>();
    sum(role, rows, routed.token, stream);
  }
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
