// The walk: parts, passes of a part, what is tapped in each.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "model/forward.h"
#include "quantize/calibration_state.h"
#include "tensor/float_formats.h"
#include "tensor/fp8.h"
#include "tensor/nvfp4.h"

namespace nibble {
namespace {

bool all_zero_or_bad(float amax) { return !(amax > 0.0F) || !std::isfinite(amax); }

float power_of_two_at_least(float value) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(1.0F, std::clamp(fraction == 0.5F ? exponent - 1 : exponent, -100, 100));
}

}  // namespace

// ---- running ----

int64_t Calibration::State::total_rows() const {
  return data.tokens() * static_cast<int64_t>(parts.size());
}

/// Rows of the embedding, each distinct token read once.
Result<void> Calibration::State::embed() {
  const auto width = static_cast<size_t>(config.hidden);
  std::map<int32_t, std::vector<size_t>> places;
  size_t row = 0;
  for (const CalibrationSample& sample : data.samples) {
    first_row.push_back(static_cast<int64_t>(row));
    for (const int32_t id : sample.ids) places[id].push_back(row++);
  }
  hidden.resize(row * width);
  const LinearSource& table = weights.embedding();
  const TensorEntry* entry = checkpoint.find(table.values);
  CHECK(entry != nullptr, "no tensor ", table.values);
  if (table.scheme.weights != WeightFormat::plain)
    return make_error(
        ErrorCode::unsupported,
        {.what = table.values, .expected = "an unquantized embedding", .found = "a quantized one"});
  const int64_t bytes = dtype_bytes(entry->dtype, config.hidden);
  std::vector<std::byte> raw(static_cast<size_t>(bytes));
  std::vector<float> values(width);
  for (const auto& [id, rows] : places) {
    if (id < 0 || id >= config.vocab_rows)
      return make_error(ErrorCode::invalid_argument,
                        {.what = "token id in calibration data",
                         .expected = concat("below ", config.vocab_rows),
                         .found = concat(id)});
    TRY(checkpoint.read_bytes(*entry, id * bytes, raw));
    decode_plain(raw.data(), entry->dtype, config.hidden, values.data());
    for (const size_t place : rows)
      for (size_t i = 0; i < width; ++i) hidden[place * width + i] = float_to_bf16(values[i]);
  }
  return {};
}

/// Short samples share a pass; a long one goes through in pieces, each pass holding only it.
std::vector<std::vector<Piece>> Calibration::State::passes() const {
  std::vector<std::vector<Piece>> out;
  int64_t rows = kPassRows;
  for (size_t s = 0; s < data.samples.size(); ++s) {
    const auto length = static_cast<int64_t>(data.samples[s].ids.size());
    if (length > kPassRows) {
      for (int64_t begin = 0; begin < length; begin += kPassRows)
        out.push_back({{s, begin, std::min(kPassRows, length - begin)}});
      rows = kPassRows;
      continue;
    }
    if (rows + length > kPassRows) {
      out.emplace_back();
      rows = 0;
    }
    out.back().push_back({s, 0, length});
    rows += length;
  }
  return out;
}

/// Pools for the longest sample, or for a pass of short ones.
PoolSizes pools_for(const std::vector<std::vector<Piece>>& passes, int64_t longest) {
  PoolSizes sizes{.rows_max = static_cast<int32_t>(kPassRows)};
  sizes.pages = static_cast<int32_t>((longest + kPageTokens - 1) / kPageTokens);
  for (const auto& pieces : passes) {
    int32_t pages = 0;
    for (const Piece& piece : pieces)
      pages += static_cast<int32_t>((piece.count + kPageTokens - 1) / kPageTokens);
    sizes.pages = std::max(sizes.pages, pages);
    sizes.state_slots = std::max(sizes.state_slots, static_cast<int32_t>(pieces.size()));
  }
  return sizes;
}

Result<void> Calibration::State::open_layer(int layer) {
  if (backend_layer == layer) return {};
  backend.reset();
  one = config;
  one.layers = {config.layers[static_cast<size_t>(layer)]};
  backend = TRY(options.make_backend(weights.only(layer), one));
  if (!backend->calibrates())
    return make_error(ErrorCode::unsupported,
                      {.what = concat("calibration on the backend ", backend->name()),
                       .expected = "one that shows the inputs of its linears",
                       .advice = "calibrate on the CPU"});
  pools = pools_for(passes(), data.longest());
  TRY(backend->reserve(pools));
  backend_layer = layer;
  return {};
}

Result<void> Calibration::State::run_pass(const std::vector<Piece>& pieces, const Part& part) {
  const auto width = static_cast<size_t>(config.hidden);
  Batch batch;
  batch.taps = &taps;
  std::vector<float> rows;
  std::vector<size_t> places;
  for (const Piece& piece : pieces) {
    const auto slot = static_cast<int32_t>(batch.sequences.size());
    if (piece.begin == 0) backend->zero_state(slot);
    const int64_t end = piece.begin + piece.count;
    const auto pages = static_cast<int32_t>((end + kPageTokens - 1) / kPageTokens);
    const auto page_begin = static_cast<int32_t>(batch.pages.size());
    for (int32_t page = 0; page < pages; ++page) batch.pages.push_back(page_begin + page);
    batch.sequences.push_back({.row_begin = static_cast<int32_t>(places.size()),
                               .row_count = static_cast<int32_t>(piece.count),
                               .kv_begin = static_cast<int32_t>(piece.begin),
                               .page_begin = page_begin,
                               .page_count = pages,
                               .state_in = slot,
                               .state_out = slot});
    for (int64_t t = piece.begin; t < end; ++t)
      places.push_back(static_cast<size_t>(first_row[piece.sample] + t));
  }
  rows.resize(places.size() * width);
  for (size_t r = 0; r < places.size(); ++r)
    for (size_t i = 0; i < width; ++i)
      rows[r * width + i] = bf16_to_float(hidden[places[r] * width + i]);
  batch.tokens.assign(places.size(), 0);
  for (size_t r = 0; r < places.size(); ++r)
    batch.embeddings.push_back({.row = static_cast<int32_t>(r), .embedding = &rows[r * width]});
  for (int axis = 0; axis < 3; ++axis)
    for (const Piece& piece : pieces)
      for (int64_t t = 0; t < piece.count; ++t)
        batch.positions.push_back(static_cast<int32_t>(piece.begin + t));
  validate_batch(batch, one, pools);
  const Residual h = run_layers(*backend, one, batch);
  if (part.last) {
    backend->read_residual(h, rows);
    for (size_t r = 0; r < places.size(); ++r)
      for (size_t i = 0; i < width; ++i)
        hidden[places[r] * width + i] = float_to_bf16(rows[r * width + i]);
  }
  rows_done += static_cast<int64_t>(places.size());
  if (options.progress) options.progress(rows_done, total_rows());
  return {};
}

Result<void> Calibration::State::run_layer(const Part& part) {
  TRY(open_layer(part.layer));
  for (const auto& pieces : passes()) {
    if (options.check) TRY(options.check());
    TRY(run_pass(pieces, part));
  }
  return {};
}

/// The head's input: the final norm of the hidden states (model.md 2.1), in double.
Result<void> Calibration::State::run_head(const Part& part) {
  backend.reset();
  backend_layer = -1;
  if (part.inputs.empty()) return {};
  const auto width = static_cast<size_t>(config.hidden);
  std::vector<float> weight = TRY(weights.load(weights.final_norm()));
  if (config.norm == NormKind::zero_centred)
    for (float& w : weight) w += 1.0F;
  InputStatistics& head = *taps.find(part.inputs.front().module);
  ThreadPool threads(0);
  std::vector<float> rows(static_cast<size_t>(kPassRows) * width);
  const size_t total = hidden.size() / width;
  for (size_t begin = 0; begin < total; begin += static_cast<size_t>(kPassRows)) {
    if (options.check) TRY(options.check());
    const size_t count = std::min(static_cast<size_t>(kPassRows), total - begin);
    for (size_t r = 0; r < count; ++r) {
      const uint16_t* from = &hidden[(begin + r) * width];
      double square = 0;
      for (size_t i = 0; i < width; ++i) {
        const double x = bf16_to_float(from[i]);
        square += x * x;
      }
      const double scale = 1.0 / std::sqrt(square / static_cast<double>(width) +
                                           static_cast<double>(config.rms_eps));
      for (size_t i = 0; i < width; ++i)
        rows[r * width + i] =
            static_cast<float>(bf16_to_float(from[i]) * scale * static_cast<double>(weight[i]));
    }
    head.add(rows.data(), static_cast<int64_t>(count), config.hidden, threads);
    rows_done += static_cast<int64_t>(count);
    if (options.progress) options.progress(rows_done, total_rows());
  }
  return {};
}

/// Takes down what outlives the part; refuses inputs that are mostly no numbers.
Result<void> Calibration::State::finish(const Part& part) {
  for (const auto& [module, seen] : taps.all()) {
    float& most = largest[shared_key.at(module)];
    most = std::max(most, seen.amax);
  }
  for (const TappedInput& input : part.inputs) {
    const InputStatistics& seen = *taps.find(input.module);
    bad += seen.bad_tokens;
    if (!input.expert.empty()) experts.push_back({input.expert, seen.tokens});
    if (seen.bad_tokens * 10 > seen.tokens + seen.bad_tokens)
      return make_error(
          ErrorCode::corrupt,
          {.what = concat("the input of ", input.module),
           .expected = "finite numbers",
           .found = concat("NaN or infinity in ", seen.bad_tokens, " of ",
                           seen.tokens + seen.bad_tokens, " tokens"),
           .advice = "`nibble verify` looks for broken weights; or calibrate on other data"});
  }
  return {};
}

// ---- the outside ----

Calibration::Calibration(std::unique_ptr<State> state) : state_(std::move(state)) {}
Calibration::~Calibration() = default;
Calibration::Calibration(Calibration&&) noexcept = default;

Result<Calibration> Calibration::start(const Checkpoint& checkpoint, const Weights& weights,
                                       const ModelConfig& config, const CalibrationData& data,
                                       CalibrationOptions options) {
  CHECK(!data.samples.empty() && options.make_backend, "nothing to calibrate with");
  auto state = std::make_unique<State>(State{.checkpoint = checkpoint,
                                             .weights = weights,
                                             .config = config,
                                             .data = data,
                                             .options = std::move(options)});
  TRY(state->fit());
  TRY(state->embed());
  return Calibration(std::move(state));
}

int Calibration::parts() const { return static_cast<int>(state_->parts.size()); }

int Calibration::part_of(const std::string& module) const {
  const auto leader = state_->leader.find(module);
  if (leader == state_->leader.end()) return -1;
  const auto part = state_->part_index.find(leader->second);
  return part == state_->part_index.end() ? -1 : part->second;
}

Result<void> Calibration::run(int index) {
  const Part& part = state_->parts[static_cast<size_t>(index)];
  state_->taps = Taps();
  for (const TappedInput& input : part.inputs)
    state_->taps.want(input.module, input.cols, input.kind);
  // The first part of a layer also takes the largest inputs of the others, as they are shared.
  if (index == 0 || state_->parts[static_cast<size_t>(index) - 1].layer != part.layer)
    for (size_t i = static_cast<size_t>(index) + 1;
         i < state_->parts.size() && state_->parts[i].layer == part.layer; ++i)
      for (const TappedInput& input : state_->parts[i].inputs)
        state_->taps.want(input.module, input.cols, SecondMoment::none);
  state_->current = index;
  TRY(part.layer == state_->config.layer_count() ? state_->run_head(part)
                                                 : state_->run_layer(part));
  return state_->finish(part);
}

const InputStatistics* Calibration::find(const std::string& module) const {
  const auto leader = state_->leader.find(module);
  if (leader == state_->leader.end() || part_of(module) != state_->current) return nullptr;
  return state_->taps.find(leader->second);
}

float Calibration::amax(const std::string& module) const {
  const auto leader = state_->leader.find(module);
  if (leader == state_->leader.end()) return 0.0F;
  const auto key = state_->shared_key.find(leader->second);
  if (key == state_->shared_key.end()) return 0.0F;
  const auto found = state_->largest.find(key->second);
  return found == state_->largest.end() ? 0.0F : found->second;
}

CalibrationMemory Calibration::memory() const { return state_->memory(); }

const std::vector<ExpertTokens>& Calibration::expert_tokens() const { return state_->experts; }
int64_t Calibration::bad_tokens() const { return state_->bad; }

Json Calibration::json() const {
  Json out = state_->data.json();
  out.set("inputs_with_nan_or_infinity", state_->bad);
  Json few{Json::Array{}};
  std::map<std::string, std::pair<int64_t, int64_t>> layers;  // least and most tokens
  for (const ExpertTokens& expert : state_->experts) {
    const std::string layer = expert.module.substr(0, expert.module.rfind('.'));
    auto& [least, most] = layers.try_emplace(layer, expert.tokens, expert.tokens).first->second;
    least = std::min(least, expert.tokens);
    most = std::max(most, expert.tokens);
    if (expert.tokens >= state_->options.tokens_few) continue;
    Json one;
    one.set("expert", expert.module);
    one.set("tokens", expert.tokens);
    few.push_back(std::move(one));
  }
  if (layers.empty()) return out;
  Json tokens;
  for (const auto& [layer, range] : layers)
    tokens.set(layer, Json(Json::Array{Json(range.first), Json(range.second)}));
  out.set("tokens_of_experts_least_and_most", std::move(tokens));
  out.set(concat("experts_below_", state_->options.tokens_few, "_tokens"), std::move(few));
  return out;
}

float nvfp4_input_scale(float amax) {
  return all_zero_or_bad(amax)
             ? 1.0F
             : power_of_two_at_least(kNvfp4Headroom / kNvfp4AmaxOverGlobal * amax);
}

float fp8_input_scale(float amax) {
  return all_zero_or_bad(amax) ? 1.0F : power_of_two_at_least(kFp8Headroom / 448.0F * amax);
}

}  // namespace nibble
