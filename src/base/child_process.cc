// One call of posix_spawnp and what it takes to make it.
#include "base/child_process.h"

#include <spawn.h>
#include <unistd.h>

#include <csignal>
#include <utility>

extern char** environ;

namespace nibble {
namespace {

/// Words as C has them: each must outlive the pointers.
std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

StartedProcess start_process(const ChildProcess& child) {
  StartedProcess started;
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  for (const auto& [given, standard] :
       {std::pair(child.input, STDIN_FILENO), std::pair(child.output, STDOUT_FILENO),
        std::pair(child.errors, STDERR_FILENO)})
    if (given && started.error == 0)
      started.error = ::posix_spawn_file_actions_adddup2(&files, *given, standard);
  ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t how;
  ::posix_spawnattr_init(&how);
  sigset_t signals;
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&how, &signals);
  ::sigaddset(&signals, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&how, &signals);
  const bool own = child.group == ChildProcess::Group::own;
  ::posix_spawnattr_setflags(&how,
                             static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                (own ? POSIX_SPAWN_SETPGROUP : 0)));
  const std::vector<char*> words = pointers_to(child.words);
  std::vector<char*> variables;
  if (child.environment) variables = pointers_to(*child.environment);
  const char* program = child.program.empty() ? words[0] : child.program.c_str();
  if (started.error == 0)
    started.error = ::posix_spawnp(&started.number, program, &files, &how, words.data(),
                                   child.environment ? variables.data() : environ);
  ::posix_spawnattr_destroy(&how);
  ::posix_spawn_file_actions_destroy(&files);
  if (started.error != 0) started.number = -1;
  return started;
}

}  // namespace nibble
