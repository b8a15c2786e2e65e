// The worker's standard input is the socket by which it is given one for each child.
#include "grammar/structure_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/child_process.h"
#include "grammar/structure_sockets.h"

namespace nibble {

namespace {

constexpr int kAskEveryMs = 10;
constexpr int kEndLooks = 20;  // as many, until a worker without an answer counts as alive
constexpr size_t kPieceBytes = size_t{1} << 20;

Error not_started(std::string_view why) {
  return make_error(ErrorCode::io,
                    {.what = "the process that compiles structures cannot be started",
                     .found = why,
                     .advice = "allow the server to start its own program again"});
}

struct Pair {
  int ours = -1;
  int theirs = -1;
};
Result<Pair> make_pair_of_sockets() {
  std::array<int, 2> ends = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return not_started(std::strerror(errno));
  return Pair{.ours = ends[0], .theirs = ends[1]};
}

/// Closes what it is given.
class Closing {
 public:
  explicit Closing(int socket) : socket_(socket) {}
  ~Closing() { ::close(socket_); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  int socket_;
};

/// Reads until the child closes its end.
Result<std::string> read_answer(int job, const std::function<bool()>& abandoned) {
  std::string bytes;
  std::string piece(kPieceBytes, '\0');
  while (true) {
    pollfd readable = {.fd = job, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&readable, 1, kAskEveryMs);
    if (abandoned && abandoned())
      return make_error(ErrorCode::cancelled, {.what = "the client has left"});
    if (ready <= 0) continue;
    const ssize_t got = ::recv(job, piece.data(), piece.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return bytes;  // after a reset it is cut short, which its reader sees
    bytes.append(piece, 0, static_cast<size_t>(got));
  }
}

}  // namespace

StructureProcess::~StructureProcess() { end_worker(); }

pid_t StructureProcess::worker() const {
  const std::lock_guard lock(mutex_);
  return worker_;
}

void StructureProcess::end_worker() {
  if (worker_ < 0) return;
  ::close(control_);
  ::kill(worker_, SIGKILL);  // its children follow it
  while (::waitpid(worker_, nullptr, 0) < 0 && errno == EINTR) continue;
  worker_ = control_ = -1;
}

Result<void> StructureProcess::start_worker() {
  const Pair pair = TRY(make_pair_of_sockets());
  const Closing theirs(pair.theirs);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const Closing sink(nowhere);
  const StartedProcess started =
      start_process({.words = command_, .program = {}, .input = pair.theirs, .output = nowhere});
  if (started.error != 0) {
    ::close(pair.ours);
    return not_started(concat(command_[0], ": ", std::strerror(started.error)));
  }
  worker_ = started.number;
  control_ = pair.ours;
  return send_message(control_, setup_);
}

Result<void> StructureProcess::hand_over(int child_end) {
  if (worker_ < 0) TRY(start_worker());
  return send_socket(control_, child_end);
}

Result<int> StructureProcess::begin() {
  const Pair pair = TRY(make_pair_of_sockets());
  const Closing theirs(pair.theirs);
  const std::lock_guard lock(mutex_);
  Result<void> given = hand_over(pair.theirs);
  if (!given.ok()) {  // the worker has ended since it was asked last
    end_worker();
    given = hand_over(pair.theirs);
  }
  if (given.ok()) return pair.ours;
  end_worker();
  ::close(pair.ours);
  return not_started(given.error().message);
}

StructureProcess::Worker StructureProcess::look_at_worker() {
  constexpr int kLook = WEXITED | WNOHANG | WNOWAIT;
  // A process that is killed closes its sockets some time before it counts as ended.
  for (int looks_left = kEndLooks; looks_left > 0; --looks_left) {
    {
      const std::lock_guard lock(mutex_);
      if (worker_ < 0) return Worker::ended;
      siginfo_t state = {};
      const int known = ::waitid(P_PID, static_cast<id_t>(worker_), &state, kLook);
      if (known != 0 || state.si_pid == worker_) return Worker::ended;
    }
    ::poll(nullptr, 0, kAskEveryMs);
  }
  return Worker::runs;
}

Result<StructureProcess::Answer> StructureProcess::compile(std::string_view source,
                                                           const std::function<bool()>& abandoned) {
  for (int attempts_left = 1;; --attempts_left) {
    const int job = TRY(begin());
    const Closing closing(job);
    (void)send_message(job, source);  // where it fails there is no answer
    std::string bytes = TRY(read_answer(job, abandoned));
    if (!bytes.empty()) {
      const auto end = static_cast<CompileEnd>(bytes[0]);
      bytes.erase(0, 1);
      return Answer{.end = end, .bytes = std::move(bytes)};
    }
    // Killed by an operator, perhaps, and none of its children was asked for anything wrong.
    if (attempts_left > 0 && look_at_worker() == Worker::ended) continue;
    return Answer{};
  }
}

}  // namespace nibble
