// Asks the operating system and the driver, once.
#include "cli/benchmarks/bench_machine.h"

#include <sys/sysinfo.h>

#include <ctime>
#include <fstream>

#include "base/thread_pool.h"
#include "cli/card/nvml.h"
#include "plan/text_table.h"

namespace nibble {
namespace {

/// "AMD EPYC 9B14", as the kernel names it; empty where it does not.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t at = line.find(": ");
    if (at != line.npos) return line.substr(at + 2);
  }
  return {};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

std::string memory_text() {
  struct sysinfo info = {};
  if (::sysinfo(&info) != 0) return {};
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  return concat(fixed_text(static_cast<double>(info.totalram) * info.mem_unit / kGib, 1), " GiB");
}

}  // namespace

std::vector<Json::Member> bench_machine() {
  std::vector<Json::Member> facts = {{"nibble", Json(NIBBLE_VERSION)}, {"date", Json(utc_now())}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) facts.push_back({name, Json(value)});
  };
  add("processor", processor_name());
  facts.push_back({"cores", Json(usable_cores())});
  add("memory", memory_text());
  const DriverFacts driver = ask_driver();
  std::string cards;
  for (const GpuFacts& gpu : driver.gpus) cards += concat(cards.empty() ? "" : " + ", gpu.name);
  add("cards", cards.empty() ? "none" : cards);
  add("driver", driver.version);
  return facts;
}

}  // namespace nibble
