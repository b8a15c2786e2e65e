// The processors of this machine: wishes that they cannot fulfil are refused before anything is
// read.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble::cpu {

/// Errors: those of select_kernels; invalid_argument, if `threads` are more than the cores that
/// this process may use.
Result<void> check_processors(std::string_view isa, int threads);

/// NUMA nodes that have one of `cores`: lists of cores, such as "0-3,8", in files node*/cpulist of
/// `folder`. 1 if the system names none.
int numa_nodes(std::span<const int> cores, const std::filesystem::path& folder);

/// A line for people if the cores that this process may use have more than one node; else empty.
std::string numa_notice();

}  // namespace nibble::cpu
