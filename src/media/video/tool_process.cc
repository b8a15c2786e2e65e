// Pipes, and the reasons to end the program at their other end.
#include "media/video/tool_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <utility>

#include "base/child_process.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookEveryMs = 20;
constexpr size_t kComplaintMax = 4096;
constexpr size_t kPieceBytes = size_t{256} << 10;

Error failed(std::string_view action) {
  const int number = errno;
  return make_error(number == ENOMEM || number == ENOSPC ? ErrorCode::no_memory : ErrorCode::io,
                    {.what = concat("video: ", action), .found = std::strerror(number)});
}

struct Pipe {
  Descriptor from;
  Descriptor to;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed("a pipe cannot be made");
  return Pipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

/// The process and all that it started; they have ended when this ends.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(-pid_, SIGKILL);  // also what it left behind
    int ignored = 0;
    while (::waitpid(pid_, &ignored, 0) < 0 && errno == EINTR) continue;
  }

  /// Its status once it has ended.
  std::optional<int> ended() const {
    // The number stays its own, for kill(), until it is waited for: look without taking it.
    siginfo_t state = {};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &state, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        state.si_pid != pid_)
      return std::nullopt;
    return state.si_code == CLD_EXITED ? state.si_status : 128 + state.si_status;
  }

 private:
  pid_t pid_;
};

/// The reasons to end a running program.
struct Watch {
  const ToolLimits& limits;
  const std::function<bool()>& cancelled;
  Clock::time_point until;

  Result<void> look() const {
    if (cancelled && cancelled())
      return make_error(ErrorCode::cancelled, {.what = "video: the client has left"});
    if (Clock::now() < until) return {};
    return make_error(ErrorCode::invalid_argument,
                      {"video", concat("decoding within ", limits.wall_ms_max, " ms"),
                       "one that takes longer", "send a shorter or a smaller one"});
  }
};

/// Reads once what is in a pipe. False at the end.
Result<bool> read_piece(int from, std::vector<std::byte>& piece, const ToolSink& sink) {
  const ssize_t got = ::read(from, piece.data(), piece.size());
  if (got < 0 && errno == EINTR) return true;
  if (got < 0) return failed("the output of a program cannot be read");
  if (got == 0) return false;
  TRY(sink(std::span(piece).first(static_cast<size_t>(got))));
  return true;
}

/// Until both pipes are closed.
Result<void> read_all(int output, int complaints, const ToolSink& sink, Watch& watch,
                      std::string& complaint) {
  std::vector<std::byte> piece(kPieceBytes);
  int64_t bytes = 0;
  const ToolSink counted = [&](std::span<const std::byte> data) -> Result<void> {
    bytes += std::ssize(data);
    if (bytes <= watch.limits.output_bytes_max) {
      const auto begin = Clock::now();
      TRY(sink(data));
      watch.until += Clock::now() - begin;
      return {};
    }
    return make_error(ErrorCode::invalid_argument,
                      {"video", concat("at most ", watch.limits.output_bytes_max, " bytes decoded"),
                       "more", "send a shorter or a smaller one"});
  };
  const ToolSink keep = [&](std::span<const std::byte> data) -> Result<void> {
    const size_t room = kComplaintMax - complaint.size();
    complaint.append(reinterpret_cast<const char*>(data.data()), std::min(room, data.size()));
    return {};
  };
  std::array<pollfd, 2> pipes = {pollfd{output, POLLIN, 0}, pollfd{complaints, POLLIN, 0}};
  while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
    const int ready = ::poll(pipes.data(), pipes.size(), kLookEveryMs);
    TRY(watch.look());
    if (ready <= 0) continue;
    for (pollfd& pipe : pipes)
      if (pipe.fd >= 0 && pipe.revents != 0 &&
          !TRY(read_piece(pipe.fd, piece, &pipe == pipes.data() ? counted : keep)))
        pipe.fd = -1;
  }
  return {};
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    number_ = other.release();
  }
  return *this;
}

void Descriptor::reset() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

int Descriptor::release() { return std::exchange(number_, -1); }

Result<Descriptor> sealed_memory_file(std::span<const std::byte> bytes) {
  Descriptor file(::memfd_create("nibble-video", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.number() < 0) return failed("a file in memory cannot be made");
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed("a file in memory cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
  if (::fcntl(file.number(), F_ADD_SEALS, kSeals) != 0)
    return failed("a file in memory cannot be sealed");
  ::lseek(file.number(), 0, SEEK_SET);
  return file;
}

Result<ToolEnd> run_tool(const ToolCommand& command, int input, const ToolLimits& limits,
                         const ToolSink& sink, const std::function<bool()>& cancelled) {
  Pipe output = TRY(make_pipe());
  Pipe complaints = TRY(make_pipe());
  const StartedProcess started = start_process(
      {.words = command.words,
       .program = {},
       .input = input,
       .output = output.to.number(),
       .errors = complaints.to.number(),
       .environment = std::vector{concat("PATH=", command.path), std::string("LC_ALL=C")}});
  if (started.error != 0) {
    errno = started.error;
    return failed(concat(command.words[0], " cannot be started"));
  }
  const Child child(started.number);
  output.to.reset();
  complaints.to.reset();
  Watch watch{limits, cancelled, Clock::now() + std::chrono::milliseconds(limits.wall_ms_max)};
  ToolEnd end;
  TRY(read_all(output.from.number(), complaints.from.number(), sink, watch, end.complaint));
  while (true) {
    if (const auto status = child.ended()) {
      end.status = *status;
      return end;
    }
    TRY(watch.look());
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace nibble
