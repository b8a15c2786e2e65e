// The questions of `nibble plan` and `nibble doctor`, asked for the user.
#include "cli/hub/pull_advice.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "base/file.h"
#include "cli/card/nvml.h"
#include "cli/plan/plan_machine.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::string gigabytes(double bytes) {
  const auto tenths = static_cast<int64_t>(std::llround(bytes / 1e8));
  return concat(tenths / 10, ".", tenths % 10, " GB");
}

/// A file with the text that lives as long as this.
class TemporaryConfig {
 public:
  explicit TemporaryConfig(std::string_view text) {
    std::error_code failure;
    std::string pattern = (fs::temp_directory_path(failure) / "nibble-pull-XXXXXX").string();
    if (failure || ::mkdtemp(pattern.data()) == nullptr) return;
    folder_ = pattern;
    if (!write_file_atomically(path(), text).ok()) folder_.clear();
  }
  TemporaryConfig(const TemporaryConfig&) = delete;
  TemporaryConfig& operator=(const TemporaryConfig&) = delete;
  ~TemporaryConfig() {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }
  bool is_there() const { return !folder_.empty(); }
  fs::path path() const { return folder_ / "config.json"; }

 private:
  fs::path folder_;
};

/// The flags of `nibble serve` with their defaults; environment variables do not count.
Result<Arguments> default_flags(const fs::path& config, std::string_view recipe) {
  std::vector<std::string> words = {config.string()};
  if (!recipe.empty()) words.insert(words.end(), {"--recipe", std::string(recipe)});
  return parse_arguments(kPlanVerb, words,
                         [](const std::string&) { return std::optional<std::string>(); });
}

Result<std::string> fit(const Arguments& flags, const PlanModel& model,
                        const std::optional<PlannedCard>& card) {
  const std::string weights =
      concat(gigabytes(static_cast<double>(card ? total_bytes(model.served.on_card)
                                                : total_bytes(model.served.on_cpu))),
             " of weights");
  const auto run = plan_run(flags, model, card);
  if (!run.ok() && run.error().code != ErrorCode::no_memory) return run.error();
  if (!run.ok()) return concat(weights, " do not fit");
  constexpr int64_t kContext = 2048;
  const double speed = speed_row(model, run.value().request, card, 1, kContext).tokens_per_second;
  std::string text =
      concat(weights, " fit, requests of up to ", run.value().plan.context_max, " tokens");
  if (speed > 0) text += concat(", at most ", std::llround(speed), " tokens/s (computed)");
  return text;
}

Result<std::string> lines(const fs::path& config, Terminal& terminal) {
  const DriverFacts driver = ask_driver();
  std::optional<PlannedCard> card;
  std::string where = "this machine's CPU";
  constexpr int32_t kOldest = 80;
  if (!driver.gpus.empty() && driver.gpus.front().capability >= kOldest) {
    card = card_of_device(driver.gpus.front());
    where = driver.gpus.front().name;
  }
  const Arguments flags = TRY(default_flags(config, ""));
  const PlanModel model = TRY(read_plan_model(flags, config, {}, terminal));
  std::string text = concat("on ", where, ": ", TRY(fit(flags, model, card)), "\n");
  const std::string json = TRY(read_text_file(config, uint64_t{16} << 20));
  if (TRY(parse_json(json, "config.json")).find("quantization_config") != nullptr) return text;
  const Arguments quantizing = TRY(default_flags(config, kDefaultRecipe));
  const PlanModel quantized = TRY(read_plan_model(quantizing, config, {}, terminal));
  return text + concat("after `nibble quantize` (recipe ", kDefaultRecipe,
                       "): ", TRY(fit(quantizing, quantized, card)), "\n");
}

}  // namespace

std::string machine_advice(std::string_view config, Terminal& terminal) {
  const TemporaryConfig file(config);
  if (!file.is_there()) return "";
  const auto text = lines(file.path(), terminal);
  if (text.ok()) return text.value();
  return concat("this build has no plan for the model: ", text.error().message, "\n");
}

Result<void> check_room(const fs::path& folder, uint64_t bytes) {
  std::error_code failure;
  fs::path at = fs::absolute(folder, failure);
  while (!fs::exists(at, failure) && at.has_relative_path()) at = at.parent_path();
  const auto space = fs::space(at, failure);
  if (failure || space.available >= bytes) return {};
  return make_error(
      ErrorCode::no_space,
      {.what = concat("the disk of ", folder.string()),
       .expected = concat(gigabytes(static_cast<double>(bytes)), " free (", bytes, " bytes)"),
       .found = concat(gigabytes(static_cast<double>(space.available))),
       .advice = "nothing was fetched; `nibble rm` frees space, HF_HUB_CACHE names "
                 "another place"});
}

}  // namespace nibble
