// The processors of this machine, as far as people have to know of them.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace nibble::cpu {

/// NUMA nodes that have one of `cores`: lists of cores, such as "0-3,8", in files node*/cpulist of
/// `folder`. 1 if the system names none.
int numa_nodes(std::span<const int> cores, const std::filesystem::path& folder);

/// A line for people if the cores that this process may use have more than one node in such a
/// folder; else empty.
std::string numa_notice(const std::filesystem::path& folder = "/sys/devices/system/node");

}  // namespace nibble::cpu
