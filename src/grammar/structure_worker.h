// The process that compiles structures for a server. It forks a child for each, with limits on the
// address space and the processor time that the child takes, so that no structure that a client
// asks for can take the server's memory, or crash it. It knows the vocabulary and nothing else:
// no key, no prompt, no file.
#pragma once

namespace nibble {

/// The word by which a program that compiles structures is told to be the worker and nothing else.
inline constexpr const char* kStructureWorkerWord = "--compile-structures";

/// Serves structure_process.h, which started this process, until it closes its end of the socket
/// that is standard input. Returns the exit code. One thread, before any other is started.
int run_structure_worker();

}  // namespace nibble
