// Asks the kernel which cores this process may use, and to which NUMA nodes they belong.
#include "backend/cpu/processors.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "base/concat.h"

namespace nibble::cpu {
namespace {

/// True if a list such as "0-3,8" has one of `cores`.
bool lists_one_of(std::istream& list, std::span<const int> cores) {
  int first = 0;
  while (list >> first) {
    int last = first;
    if (list.peek() == '-') list.ignore() >> last;
    if (std::ranges::any_of(cores, [&](int core) { return core >= first && core <= last; }))
      return true;
    if (list.peek() == ',') list.ignore();
  }
  return false;
}

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

}  // namespace

int numa_nodes(std::span<const int> cores, const std::filesystem::path& folder) {
  int nodes = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    std::ifstream list(entry.path() / "cpulist");
    if (entry.path().filename().string().starts_with("node") && lists_one_of(list, cores)) ++nodes;
  }
  return std::max(1, nodes);
}

std::string numa_notice(const std::filesystem::path& folder) {
  const int nodes = numa_nodes(own_cores(), folder);
  if (nodes == 1) return {};
  return concat("the cores are of ", nodes,
                " NUMA nodes, and most reads will cross between them; to stay on one, start the "
                "program with numactl --cpunodebind=0 --membind=0\n");
}

}  // namespace nibble::cpu
