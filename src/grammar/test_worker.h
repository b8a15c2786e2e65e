// For tests of the structure worker: a compiler with one, and what runs below it.
#pragma once

#include <sys/types.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "grammar/test_vocabulary.h"

namespace nibble {

/// The worker beside this program, which has the same library, or else that of the build.
inline std::string worker_program() {
  const auto beside =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "nibble_structure_worker";
  return std::filesystem::exists(beside) ? beside.string() : NIBBLE_STRUCTURE_WORKER;
}

inline std::unique_ptr<GrammarCompiler> with_worker(const GrammarLimits& limits = {}) {
  return std::make_unique<GrammarCompiler>(vocabulary, limits,
                                           std::vector<std::string>{worker_program()});
}

inline GrammarSource regex(std::string text) {
  return {.kind = GrammarSource::Kind::regex, .text = std::move(text)};
}

/// It takes some seconds to compile and little memory.
inline GrammarSource slow_source(int number = 0) {
  std::string properties;
  for (int i = 0; i < 200; ++i) properties += concat(i > 0 ? "," : "", "\"p", i + number, "\":{}");
  return schema(concat(R"({"type":"object","properties":{)", properties,
                       R"(},"minProperties":66,"maxProperties":133})"));
}

/// The processes whose parent is `parent`.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    const size_t name_end = line.rfind(')');
    if (name_end == line.npos) continue;
    char state = 0;
    int its_parent = 0;
    std::istringstream(line.substr(name_end + 1)) >> state >> its_parent;
    if (its_parent == parent && state != 'Z') found.push_back(std::atoi(line.c_str()));
  }
  return found;
}

}  // namespace nibble
