// The lockstep loop.
#include "eval/score.h"

#include <algorithm>
#include <cmath>

#include "model/vision.h"

namespace nibble {
namespace {

Result<std::vector<int32_t>> parse_sequence(const Json::Array& list, size_t index,
                                            int32_t vocab_rows) {
  const std::string name = concat("ids, sequence ", index);
  if (list.empty())
    return make_error(ErrorCode::invalid_argument,
                      {.what = name, .expected = "at least one id", .found = "none"});
  std::vector<int32_t> ids;
  for (const auto& element : list) {
    const int64_t id = element.is_int() ? element.as_int() : -1;
    if (id < 0 || id >= vocab_rows)
      return make_error(ErrorCode::invalid_argument,
                        {.what = concat(name, ", position ", ids.size()),
                         .expected = concat("an integer in 0..", vocab_rows - 1),
                         .found = element.dump().substr(0, 40)});
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

/// One or two models over the same ids.
class Lockstep {
 public:
  Lockstep(const ScoreRequest& request, TeacherForced model, std::optional<TeacherForced> reference)
      : request_(request), model_(model), reference_(reference) {}

  Result<void> run();
  ScoreResult result() const;

 private:
  Result<void> run_sequence(std::span<const int32_t> ids);
  Result<void> run_chunk(std::span<const int32_t> ids, size_t at, size_t count);
  /// Log-probabilities of the ids after each row of the chunk.
  void add_predictions(std::span<const float> logits, std::span<const int32_t> ids, size_t at,
                       TextScore& text) const;
  bool compares() const { return reference_ || request_.stored_reference != nullptr; }
  std::span<const float> row(std::span<const float> logits, size_t index) const {
    const auto vocab = static_cast<size_t>(request_.model.config->vocab_rows);
    return logits.subspan(index * vocab, vocab);
  }

  const ScoreRequest& request_;
  TeacherForced model_;
  std::optional<TeacherForced> reference_;
  TextScore text_;
  TextScore reference_text_;
  DivergenceCollector divergence_;
  int64_t rows_done_ = 0;
  int64_t rows_total_ = 0;
};

Result<void> Lockstep::run() {
  for (const auto& ids : request_.sequences) rows_total_ += static_cast<int64_t>(ids.size());
  for (size_t i = 0; i < request_.sequences.size(); ++i) {
    const auto& ids = request_.sequences[i];
    std::span<const PlacedImage> images;
    if (!request_.images.empty()) images = request_.images[i];
    TRY(model_.begin(static_cast<int64_t>(ids.size()), images));
    if (reference_) TRY(reference_->begin(static_cast<int64_t>(ids.size()), images));
    text_.log_probabilities.emplace_back();
    reference_text_.log_probabilities.emplace_back();
    TRY(run_sequence(ids));
  }
  return {};
}

Result<void> Lockstep::run_sequence(std::span<const int32_t> ids) {
  const auto step = static_cast<size_t>(TeacherForced::chunk_rows(*request_.model.config));
  for (size_t at = 0; at < ids.size(); at += step)
    TRY(run_chunk(ids, at, std::min(step, ids.size() - at)));
  return {};
}

Result<void> Lockstep::run_chunk(std::span<const int32_t> ids, size_t at, size_t count) {
  const auto logits = TRY(model_.next(ids.subspan(at, count)));
  add_predictions(logits, ids, at, text_);
  if (request_.logits != nullptr) TRY(request_.logits->append(logits));
  if (compares()) {
    const auto expected = reference_ ? TRY(reference_->next(ids.subspan(at, count)))
                                     : TRY(request_.stored_reference->next(int64_t(count)));
    add_predictions(expected, ids, at, reference_text_);
    const size_t sequence = text_.log_probabilities.size() - 1;
    for (size_t i = 0; i < count; ++i)
      if (!request_.compared || request_.compared(sequence, at + i)) {
        const double divergence = divergence_.add(row(expected, i), row(logits, i));
        if (request_.diverges) request_.diverges(sequence, at + i, divergence);
      }
  }
  rows_done_ += static_cast<int64_t>(count);
  if (!request_.progress) return {};
  if (request_.progress(rows_done_, rows_total_) == ScoreRequest::Next::go_on) return {};
  return Error{ErrorCode::cancelled,
               concat("stopped after ", rows_done_, " of ", rows_total_, " tokens")};
}

void Lockstep::add_predictions(std::span<const float> logits, std::span<const int32_t> ids,
                               size_t at, TextScore& text) const {
  const size_t rows = logits.size() / static_cast<size_t>(request_.model.config->vocab_rows);
  for (size_t i = 0; i < rows && at + i + 1 < ids.size(); ++i)
    text.log_probabilities.back().push_back(log_probability(row(logits, i), ids[at + i + 1]));
}

ScoreResult Lockstep::result() const {
  ScoreResult result{.text = text_};
  if (!compares()) return result;
  result.reference_text = reference_text_;
  result.divergence = divergence_.summary();
  return result;
}

/// The room that every sequence has. Errors: invalid_argument for images that nothing encodes.
Result<SequenceRoom> room_of(const ScoreRequest& request, const ModelConfig& config,
                             std::string_view model) {
  SequenceRoom room;
  for (const auto& ids : request.sequences)
    room.tokens = std::max(room.tokens, static_cast<int64_t>(ids.size()));
  for (const auto& images : request.images) {
    int64_t rows = 0;
    for (const PlacedImage& image : images) {
      if (!config.vision)
        return make_error(ErrorCode::invalid_argument,
                          {.what = concat("images for ", model),
                           .expected = "a vision tower that encodes them",
                           .found = "none"});
      rows += image.patches->grid.rows(config.vision->merge);
      room.vision_rows =
          std::max(room.vision_rows, vision_rows_of(image.patches->grid.frame_patches()));
    }
    room.media_rows = std::max(room.media_rows, static_cast<int32_t>(rows));
  }
  return room;
}

}  // namespace

int64_t TextScore::predicted() const {
  int64_t count = 0;
  for (const auto& sequence : log_probabilities) count += static_cast<int64_t>(sequence.size());
  return count;
}

double TextScore::sum() const {
  double sum = 0.0;
  for (const auto& sequence : log_probabilities)
    for (const double value : sequence) sum += value;
  return sum;
}

double TextScore::perplexity() const {
  return std::exp(-sum() / static_cast<double>(std::max<int64_t>(predicted(), 1)));
}

Result<std::vector<std::vector<int32_t>>> parse_ids(const Json& json, int32_t vocab_rows) {
  const Json* ids = json.find("ids");
  if (ids == nullptr || !ids->is_array() || ids->as_array().empty())
    return make_error(ErrorCode::corrupt,
                      {.what = "ids file",
                       .expected = "{\"ids\": [..]} or {\"ids\": [[..], ..]}",
                       .found = ids == nullptr ? "no \"ids\"" : ids->dump().substr(0, 40)});
  const auto& list = ids->as_array();
  std::vector<std::vector<int32_t>> sequences;
  if (!list.front().is_array()) {
    sequences.push_back(TRY(parse_sequence(list, 0, vocab_rows)));
    return sequences;
  }
  for (const auto& element : list) {
    if (!element.is_array())
      return make_error(ErrorCode::corrupt, {.what = concat("ids, sequence ", sequences.size()),
                                             .expected = "a list of ids like the first",
                                             .found = element.dump().substr(0, 40)});
    sequences.push_back(TRY(parse_sequence(element.as_array(), sequences.size(), vocab_rows)));
  }
  return sequences;
}

Result<ScoreResult> score(const ScoreRequest& request) {
  CHECK(request.images.empty() || request.images.size() == request.sequences.size(),
        request.images.size(), " lists of images");
  const ScoredModel& model = request.model;
  const SequenceRoom room = TRY(room_of(request, *model.config, "the model"));
  TeacherForced run =
      TRY(TeacherForced::create(*model.backend, *model.config, room, request.arithmetic));
  std::optional<TeacherForced> reference;
  if (request.reference) {
    const int found = request.reference->config->vocab_rows;
    if (found != model.config->vocab_rows)
      return make_error(ErrorCode::invalid_argument,
                        {.what = "reference",
                         .expected = concat("vocabulary of ", model.config->vocab_rows),
                         .found = concat(found)});
    reference = TRY(TeacherForced::create(
        *request.reference->backend, *request.reference->config,
        TRY(room_of(request, *request.reference->config, "the reference")), request.arithmetic));
  }
  Lockstep lockstep(request, run, reference);
  TRY(lockstep.run());
  return lockstep.result();
}

}  // namespace nibble
