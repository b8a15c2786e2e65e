// Weights by compare.h, distributions by eval/score.h.
#include "cli/quantizing/verify_against.h"

#include <algorithm>

#include "base/file.h"
#include "base/sha256.h"
#include "cli/quantizing/source_verdict.h"
#include "eval/score.h"
#include "plan/text_table.h"
#include "quantize/recipe/model_linears.h"
#include "quantize/report/model_card.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {
namespace {

constexpr uint64_t kTextBytesMax = uint64_t{1} << 30;
constexpr int64_t kSequenceTokens = 512;

/// The folders that are compared.
struct Folders {
  std::filesystem::path checkpoint;
  std::filesystem::path source;
};

/// The text's ids, in sequences short enough for every model.
Result<std::vector<std::vector<int32_t>>> sequences_of(const Arguments& arguments,
                                                       const Folders& folders,
                                                       const std::string& file) {
  const Tokenizer tokenizer = TRY(Tokenizer::load(folders.checkpoint));
  const std::string text = TRY(read_text_file(file, kTextBytesMax));
  std::vector<int32_t> ids = TRY(tokenizer.encode(text, SpecialTokens::plain_text));
  const int64_t most = TRY(arguments.integer("max-tokens", 2, int64_t{1} << 40));
  if (static_cast<int64_t>(ids.size()) > most) ids.resize(static_cast<size_t>(most));
  std::vector<std::vector<int32_t>> sequences;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += kSequenceTokens)
    sequences.emplace_back(
        ids.begin() + static_cast<int64_t>(begin),
        ids.begin() + static_cast<int64_t>(std::min(ids.size(), begin + kSequenceTokens)));
  if (sequences.empty())
    return make_error(ErrorCode::invalid_argument,
                      {.what = file, .expected = "a text of at least two tokens"});
  return sequences;
}

/// The measurements for one mode of activations.
struct Measured {
  std::string activations;  // as the backend names what it computed
  ScoreResult scores;
};

/// The mode that was asked for; otherwise, for a file that declares 4-bit activations, both modes.
Result<std::vector<Activations>> modes_of(const Arguments& arguments, const Folders& folders) {
  const Activations asked = TRY(parse_activations(arguments, "activations"));
  if (asked != Activations::automatic) return std::vector{asked};
  const Checkpoint checkpoint = TRY(Checkpoint::open(folders.checkpoint));
  const ModelConfig config = TRY(ModelConfig::parse(checkpoint.config()));
  const Weights weights = TRY(Weights::bind(checkpoint, config));
  for (const auto& group : fused_linears(weights))
    if (group.front()->scheme.activations == ActivationFormat::nvfp4)
      return std::vector{Activations::declared, Activations::bf16};
  return std::vector{asked};
}

/// "bf16" of "cuda, ..., activations bf16, KV bf16, ...".
std::string activations_of(const Backend& backend) {
  constexpr std::string_view kWord = "activations ";
  const std::string text = backend.description();
  const size_t at = text.find(kWord);
  CHECK(at != std::string::npos, text);
  const size_t begin = at + kWord.size();
  return text.substr(begin, std::min(text.find(',', begin), text.size()) - begin);
}

Result<Measured> score_text(const Arguments& arguments, const Folders& folders,
                            const std::string& file, Activations activations, Terminal& terminal) {
  ModelRequest wanted = TRY(model_request(arguments, folders.checkpoint));
  wanted.use = ModelUse::judging;
  wanted.options.activations = activations;
  ModelRequest source = wanted;
  source.folder = folders.source;
  ScoreRequest request{.sequences = TRY(sequences_of(arguments, folders, file))};
  const LoadedModel model = TRY(load_model(wanted));
  const LoadedModel reference = TRY(load_model(source));
  request.model = {.backend = model.backend.get(), .config = &model.config};
  request.reference = {.backend = reference.backend.get(), .config = &reference.config};
  Progress progress(terminal, {.label = "scoring", .unit = "tokens"});
  request.progress = [&](int64_t done, int64_t total) {
    progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return interrupted() ? ScoreRequest::Next::stop : ScoreRequest::Next::go_on;
  };
  auto scores = TRY(score(request));
  return Measured{.activations = activations_of(*model.backend), .scores = std::move(scores)};
}

Result<void> judge_text(const Arguments& arguments, const Measured& measured, Verdict& verdict) {
  const ScoreResult& scored = measured.scores;
  const double kl_max = TRY(arguments.number("max-kl", 0, 1e9));
  const double top1_min = TRY(arguments.number("min-top1", 0, 1));
  const DivergenceSummary& d = *scored.divergence;
  verdict.add(d.kl_mean <= kl_max ? Standing::ok : Standing::past,
              concat("KL divergence from the source, activations ", measured.activations, ": mean ",
                     fixed_text(d.kl_mean, 6), " (at most ", fixed_text(kl_max, 3), "), median ",
                     fixed_text(d.kl_median, 6), ", p99 ", fixed_text(d.kl_p99, 4), ", over ",
                     d.positions, " positions"));
  verdict.add(d.top1_agreement >= top1_min ? Standing::ok : Standing::past,
              concat("the same likeliest token at ", fixed_text(100 * d.top1_agreement, 2),
                     " % of positions (at least ", fixed_text(100 * top1_min, 1), " %)"));
  verdict.text +=
      concat("      perplexity ", fixed_text(scored.text.perplexity(), 4), ", of the source ",
             fixed_text(scored.reference_text->perplexity(), 4), "\n");
  return {};
}

/// Puts the figures into README.md.
Result<void> record(const Folders& folders, const std::string& file, const Measured& measured) {
  const ScoreResult& scored = measured.scores;
  const std::filesystem::path card = folders.checkpoint / "README.md";
  const std::string before = TRY(read_text_file(card, kTextBytesMax));
  const std::string text = TRY(read_text_file(file, kTextBytesMax));
  const DivergenceSummary& d = *scored.divergence;
  const std::string after =
      card_with_measurement(before, {.text = std::filesystem::path(file).filename().string(),
                                     .text_sha256 = sha256_hex(text),
                                     .positions = d.positions,
                                     .activations = measured.activations,
                                     .kl_mean = d.kl_mean,
                                     .kl_median = d.kl_median,
                                     .kl_p99 = d.kl_p99,
                                     .top1 = d.top1_agreement,
                                     .perplexity = scored.text.perplexity(),
                                     .base_perplexity = scored.reference_text->perplexity()});
  if (before.find("## Quality\n\n") == std::string::npos)
    return make_error(ErrorCode::unsupported, {.what = card.string(),
                                               .expected = "a card with a section \"Quality\"",
                                               .found = "none",
                                               .advice = "leave out --card"});
  return write_file_atomically(card, after);
}

}  // namespace

Result<int> verify_against(const Arguments& arguments, const std::filesystem::path& folder,
                           Terminal& terminal) {
  const double error_max = TRY(arguments.number("max-error", 0, 1e9));
  Folders folders{.checkpoint = folder};
  folders.source = TRY(checkpoint_folder(*arguments.text("against"), terminal));
  Verdict verdict;
  {
    const Checkpoint checkpoint = TRY(Checkpoint::open(folders.checkpoint));
    const Checkpoint source = TRY(Checkpoint::open(folders.source));
    Progress progress(terminal, {.label = "compare", .unit = "MB", .unit_scale = 1e6});
    install_interrupt_flag();
    const Comparison compared = TRY(compare_checkpoints(
        checkpoint, source,
        {.progress =
             [&](int64_t done, int64_t total) {
               progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
             },
         .cancelled = interrupted}));
    judge_weights(compared, error_max, verdict);
    TRY(judge_papers(checkpoint, source, verdict));
  }
  if (arguments.given("text")) {
    const std::string file = *arguments.text("text");
    const auto modes = TRY(modes_of(arguments, folders));
    for (const Activations mode : modes) {
      const auto measured = score_text(arguments, folders, file, mode, terminal);
      // A card that cannot compute what is declared still measures the other mode.
      const bool other_left = mode != modes.back();
      if (!measured.ok() && measured.error().code == ErrorCode::unsupported && other_left) {
        verdict.text += concat("      not measured with activations ", activations_name(mode), ": ",
                               measured.error().message, "; --backend cpu can\n");
        continue;
      }
      if (!measured.ok()) return measured.error();
      TRY(judge_text(arguments, measured.value(), verdict));
      if (arguments.enabled("card")) TRY(record(folders, file, measured.value()));
    }
  }
  TRY(terminal.out(verdict.text));
  return verdict.bad == 0 ? kExitOk : kExitFailure;
}

}  // namespace nibble
