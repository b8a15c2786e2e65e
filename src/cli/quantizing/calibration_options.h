// The --calib options of `nibble quantize`: data, and what gathers sums over it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "cli/verb.h"
#include "quantize/calibrate/calibration.h"
#include "quantize/recipe/quant_plan.h"
#include "quantize/rounding/rounding.h"

namespace nibble {

inline constexpr Option kCalibOption = {
    "calib", "FILES|MIX", "",
    "samples: FILE.jsonl[:COUNT],FILE.txt, a mix by name, or its YAML file"};
inline constexpr Option kCalibFolderOption = {"calib-folder", "DIR", ".",
                                              "folder of the files of a mix"};
inline constexpr Option kCalibSamplesOption = {"calib-samples", "N", "512",
                                               "samples, over all files that name no count"};
inline constexpr Option kCalibLengthOption = {"calib-length", "N", "2048",
                                              "tokens of a sample at most; a mix has its own"};
inline constexpr Option kCalibSeedOption = {"calib-seed", "N", "0",
                                            "seed of the choice of samples"};
inline constexpr Option kCalibMapOption = {
    "calib-map", "NAME=FIELD", "", "fields of records by other names: prompt=query,response=reply"};
inline constexpr Option kSecondMomentsOption = {
    "second-moments", "plain|fisher[:SHARE]", "plain",
    "sums over inputs for diagonal, blocks and gptq: plain counts all tokens alike; fisher by what "
    "errors at them cost, with SHARE (0.3) of the plain sums added"};
inline constexpr Option kCalibBackendOption = {
    "backend", "auto|cuda|cpu", "auto",
    "backend that calibrates: cuda or cpu; auto is cuda where a usable card is"};

/// Everything a calibrated run needs, at addresses that stay.
struct PreparedCalibration {
  ModelConfig config;
  Weights weights;
  CalibrationData data;
  CalibrationOptions options;
  std::optional<Calibration> run;  // from start() on
  /// Keeps sums and rounds by GPTQ; nullptr: the CPU is to.
  const GptqDevice* gptq_device() const;
  /// 0: no limit. Errors: those of Calibration::start.
  Result<void> start(const Checkpoint& checkpoint, int64_t memory_bytes_max);
  /// Hash of all that decides what is seen.
  std::string hash() const;
  /// Lines for people: tokens, memory, and what runs it.
  std::string text() const;
  /// One line for people, after the run: where the time went.
  std::string seconds_text() const;
  std::optional<FisherOptions> fisher;
  /// The reason why the backend is not the one that auto prefers, or empty.
  std::string notice;
};

/// The samples that --calib and its options ask for. Errors: those of read_calibration, wrong
/// values.
Result<CalibrationData> read_calibration_data(const Arguments& arguments,
                                              const Checkpoint& checkpoint,
                                              const ModelConfig& config);

struct CalibrationNeeds {
  RoundAlgorithm algorithm = RoundAlgorithm::search;
  SecondMoments second_moments = SecondMoments::plain;  // unless an option says otherwise
  int threads = 0;
};

/// Ready to start; nullptr without --calib. Errors: invalid_argument (an algorithm that needs data
/// and gets none, or options without --calib), those of read_calibration and of the card.
Result<std::unique_ptr<PreparedCalibration>> prepare_calibration(const Arguments& arguments,
                                                                 const Checkpoint& checkpoint,
                                                                 const QuantPlan& plan,
                                                                 const CalibrationNeeds& needs);

}  // namespace nibble
