// For tests: tensors put together by hand, written as a checkpoint, and its modules as the checks
// of verify see them.
#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "quantize/verify/verify_checks.h"
#include "testing/test_files.h"

namespace nibble::test {

/// A line for each finding.
inline std::string listing(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings)
    out += concat(finding.severity == Severity::error ? "error " : "warning ", finding.subject,
                  ": ", finding.text, "\n");
  return out;
}

class WrittenModules {
 public:
  /// The bytes of `values`, whatever the type is.
  void add(const std::string& name, DType dtype, const Shape& shape,
           const std::vector<float>& values) {
    std::string bytes(values.size() * sizeof(float), 0);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    add_bytes(name, dtype, shape, std::move(bytes));
  }
  void add_bytes(const std::string& name, DType dtype, const Shape& shape, std::string bytes) {
    plans_.push_back({name, dtype, shape});
    bytes_.push_back(std::move(bytes));
  }
  /// Codes of this shape and block scales; they are ones of the module's other tensors' own.
  void add_nvfp4(const std::string& module, const Shape& codes) {
    const auto count = static_cast<size_t>(codes.count());
    add_bytes(module + ".weight_packed", DType::u8, codes, std::string(count, 1));
    const Shape scales = {codes[0], codes[1] / 8};
    add_bytes(module + ".weight_scale", DType::f8_e4m3, scales, std::string(count / 8, 0x38));
  }

  /// Writes and opens what was added, and looks at the values of all tensors.
  VerifySubject subject() {
    auto writer = CheckpointWriter::create(root_ / "model", plans_).value();
    for (size_t i = 0; i < plans_.size(); ++i)
      writer.append(plans_[i].name, std::as_bytes(std::span(bytes_[i]))).value();
    writer.finish(parse_json("{}", "config").value()).value();
    checkpoint_.emplace(Checkpoint::open(root_ / "model").value());
    modules_ = stored_modules(*checkpoint_, declared_);
    return {*checkpoint_, declared_, modules_, facts_};
  }

 private:
  TemporaryFolder root_;
  std::vector<TensorPlan> plans_;
  std::vector<std::string> bytes_;
  std::optional<Checkpoint> checkpoint_;
  QuantConfig declared_;
  std::vector<StoredModule> modules_;
  std::map<const TensorEntry*, ValueFacts> facts_;
};

}  // namespace nibble::test
