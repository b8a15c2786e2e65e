// The worker builds the vocabulary's tables once; a child has them from the moment it is forked.
// A child compiles, writes its answer and ends. Every few milliseconds a timer looks whether the
// child may go on: its client may have left, its time may be over, and the longer it has run the
// more it gives way to others.
#include "grammar/structure_worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <new>

#include "grammar/compiled_bytes.h"
#include "grammar/structure_builder.h"
#include "grammar/structure_messages.h"
#include "grammar/structure_sockets.h"

namespace nibble {

namespace {

constexpr int kLookEveryMs = 20;
constexpr uint64_t kRequestBytesMax = uint64_t{64} << 20;
constexpr uint64_t kSetupBytesMax = uint64_t{1} << 30;

/// The timer of a child looks at these. Signal handlers have no other way to know.
int job = -1;
int nice_at_start = 0;
int64_t time_max_ms = 0;
volatile sig_atomic_t answering = 0;

int64_t processor_ms() {
  timespec used = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return int64_t{used.tv_sec} * 1000 + used.tv_nsec / 1'000'000;
}

/// A structure that compiles in a moment goes before those that take long, whoever asked first.
/// Those keep a third of the share of others, so that they end where the model computes on every
/// core.
void give_way(int64_t used_ms) {
  constexpr int64_t kMomentMs = 100;
  constexpr int kStep = 5;
  if (used_ms >= kMomentMs) ::setpriority(PRIO_PROCESS, 0, nice_at_start + kStep);
}

/// A signal handler.
void look(int) {
  pollfd left = {.fd = job, .events = POLLRDHUP, .revents = 0};
  if (::poll(&left, 1, 0) > 0 && (left.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) ::_exit(1);
  const int64_t used_ms = processor_ms();
  give_way(used_ms);
  if (used_ms < time_max_ms || answering != 0) return;
  const char end = static_cast<char>(CompileEnd::no_time);
  [[maybe_unused]] const auto written = ::send(job, &end, 1, MSG_NOSIGNAL);
  ::_exit(1);
}

uint64_t address_space_bytes() {
  unsigned long pages = 0;
  if (std::FILE* const sizes = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(sizes, "%lu", &pages) != 1) pages = 0;
    std::fclose(sizes);
  }
  return uint64_t{pages} * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

void limit_child(const WorkerSetup& setup) {
  time_max_ms = static_cast<int64_t>(setup.time_max_ms);
  // A sanitizer reserves terabytes at its start, and a limit above them would mean nothing.
  constexpr uint64_t kSanitizer = uint64_t{1} << 40;
  if (const uint64_t used = address_space_bytes(); used > 0 && used < kSanitizer) {
    const rlim_t most = used + setup.memory_bytes_max;
    const rlimit space = {.rlim_cur = most, .rlim_max = most};
    ::setrlimit(RLIMIT_AS, &space);
  }
  const rlim_t seconds = setup.time_max_ms / 1000 + 2;  // should the timer fail
  const rlimit time = {.rlim_cur = seconds, .rlim_max = seconds};
  ::setrlimit(RLIMIT_CPU, &time);
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::setrlimit(RLIMIT_FSIZE, &none);
  struct sigaction action = {};
  action.sa_handler = look;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval every = {.it_interval = {.tv_sec = 0, .tv_usec = kLookEveryMs * 1000},
                           .it_value = {.tv_sec = 0, .tv_usec = kLookEveryMs * 1000}};
  ::setitimer(ITIMER_REAL, &every, nullptr);
}

std::string answer(CompileEnd end, std::string_view text) {
  return std::string(1, static_cast<char>(end)).append(text);
}

std::string compile(const StructureBuilder& builder, const WorkerSetup& setup) {
  try {
    const auto request = receive_message(job, kRequestBytesMax);
    if (!request.ok()) return answer(CompileEnd::refused, request.error().message);
    const auto source = source_of(request.value());
    if (!source.ok()) return answer(CompileEnd::refused, source.error().message);
    const auto made = builder.build(source.value(), setup.looks_max);
    if (!made.ok()) return answer(CompileEnd::refused, made.error().message);
    return answer(CompileEnd::done, bytes_of(made.value()->compiled));
  } catch (const std::bad_alloc&) {
    return answer(CompileEnd::no_memory, "");
  }
}

/// The whole life of a child of the process `worker`.
[[noreturn]] void run_child(const StructureBuilder& builder, const WorkerSetup& setup,
                            pid_t worker) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != worker) ::_exit(1);  // it ended before it was to take the child with it
  ::close(STDIN_FILENO);
  nice_at_start = ::getpriority(PRIO_PROCESS, 0);
  limit_child(setup);
  const std::string made = compile(builder, setup);
  answering = 1;
  (void)send_bytes(job, made);
  ::_exit(0);
}

}  // namespace

int run_structure_worker() {
  ::close_range(STDERR_FILENO + 1, ~0U, 0);
  ::signal(SIGCHLD, SIG_IGN);  // nobody waits for children
  for (const int end : {SIGINT, SIGTERM, SIGHUP}) ::signal(end, SIG_IGN);  // the server ends it
  const auto bytes = receive_message(STDIN_FILENO, kSetupBytesMax);
  if (!bytes.ok()) return 1;
  const auto setup = setup_of(bytes.value());
  if (!setup.ok()) return 1;
  const StructureBuilder builder(setup.value().vocabulary);
  const pid_t own = ::getpid();
  while (true) {
    const auto next = receive_socket(STDIN_FILENO);
    if (!next) return 0;
    job = *next;
    if (::fork() == 0) run_child(builder, setup.value(), own);
    ::close(job);  // where there is no child, its client sees the end of it
  }
}

}  // namespace nibble
