// This file writes the table, for people.
#include "backend/cuda/runtime/launch_log.h"

#include "base/concat.h"

namespace nibble::cuda {
namespace {

/// Returns a text such as "0.25 GB", in units of 10^9 bytes.
std::string gigabytes(int64_t bytes) {
  std::string text = concat((bytes + 5'000'000) / 10'000'000);
  if (text.size() < 3) text.insert(0, 3 - text.size(), '0');
  return text.insert(text.size() - 2, ".") + " GB";
}

/// Returns a text such as "0.25 GB of weights, 20480 bytes of KV cache a token of context"; it is
/// empty for no bytes.
std::string amounts(const LaunchBytes& bytes) {
  std::string out;
  const auto add = [&](int64_t count, std::string text) {
    if (count > 0) out += concat(out.empty() ? "" : ", ", text);
  };
  add(bytes.weights, gigabytes(bytes.weights) + " of weights");
  add(bytes.states, gigabytes(bytes.states) + " of states");
  add(bytes.kv_tokens, concat(bytes.kv_tokens, " bytes of KV cache a token of context"));
  return out;
}

}  // namespace

std::string LaunchLog::table(std::string_view title) const {
  LaunchBytes all;
  for (const Line& line : lines_) all += line.bytes;
  std::string table = concat("  ", title, ": ", amounts(all), "\n");
  for (const Line& line : lines_) {
    std::string name = concat("    ", kStepNames[static_cast<int>(line.step)]);
    name.resize(18, ' ');
    const std::string moved = amounts(line.bytes);
    table += concat(name, line.launches, " x ", line.text, moved.empty() ? "" : "; ", moved, "\n");
  }
  return table;
}

}  // namespace nibble::cuda
