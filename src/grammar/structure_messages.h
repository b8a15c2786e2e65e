// The messages between this process and its structure worker (structure_worker.h). Private to this
// module.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "grammar/grammar_compiler.h"

namespace nibble {

/// The first message: what the worker compiles for, and the limits of each compilation.
struct WorkerSetup {
  GrammarCompiler::Vocabulary vocabulary;
  uint64_t looks_max = 0;
  uint64_t memory_bytes_max = 0;
  uint64_t time_max_ms = 0;
};

std::string bytes_of(const WorkerSetup& setup);
Result<WorkerSetup> setup_of(std::string_view bytes);

std::string bytes_of(const GrammarSource& source);
Result<GrammarSource> source_of(std::string_view bytes);

/// How a compilation ended; the first byte of an answer.
enum class CompileEnd : char {
  done = 'd',       // a compiled grammar follows (compiled_bytes.h)
  refused = 'r',    // the message of an Error that is invalid_argument
  no_memory = 'm',  // the limit on memory was reached
  no_time = 't',    // likewise on processor time
  crashed = 'c',    // never sent: the child ended without an answer
};

}  // namespace nibble
