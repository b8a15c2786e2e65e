// What a model on a CPU asks of the machine's processors, checked before anything is read.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"
#include "model/backend.h"

namespace nibble {

/// Errors: unsupported, if this machine lacks options.isa; invalid_argument, if options.threads are
/// more than the cores that this process may use.
Result<void> check_processors(const BackendOptions& options);

/// NUMA nodes that have one of `cores`: lists of cores, such as "0-3,8", in files node*/cpulist of
/// `folder`. 1 if the system names none.
int numa_nodes(std::span<const int> cores, const std::filesystem::path& folder);

/// A line for people if the cores that this process may use have more than one node; else empty.
std::string numa_notice();

}  // namespace nibble
