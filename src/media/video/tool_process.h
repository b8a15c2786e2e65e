// Runs a program that reads bytes of strangers: its input is one descriptor, its output goes
// through a pipe to a function, and it has ended, killed if need be, when the call returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

/// Holds an open descriptor and closes it.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }
  int number() const { return number_; }
  void reset();

 private:
  int release();
  int number_;
};

/// These bytes in a file in memory that has no name and that nobody can change any more.
/// Errors: io, no_memory.
Result<Descriptor> sealed_memory_file(std::span<const std::byte> bytes);

struct ToolCommand {
  std::vector<std::string> words;  // the first is an absolute path
  std::string path;                // for the environment, which holds PATH and LC_ALL=C alone
};

struct ToolLimits {
  int wall_ms_max = 60'000;  // without the time that the sink takes
  int64_t output_bytes_max = int64_t{1} << 40;
};

struct ToolEnd {
  int status = 0;         // argument of exit(), or 128 + the signal that ended it, as shells count
  std::string complaint;  // the first 4 KiB of its standard error
};

/// Takes the output in pieces. An error ends the program and is returned.
using ToolSink = std::function<Result<void>(std::span<const std::byte>)>;

/// Runs `command` with descriptor `input` as standard input and no other descriptors.
/// Errors: io if it cannot be started; invalid_argument beyond a limit; cancelled once `cancelled`
/// is true, which is asked every 20 ms and may be empty; those of `sink`.
Result<ToolEnd> run_tool(const ToolCommand& command, int input, const ToolLimits& limits,
                         const ToolSink& sink, const std::function<bool()>& cancelled);

}  // namespace nibble
