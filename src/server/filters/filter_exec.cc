// A program that lives as long as the server: a question is a line of JSON on its standard input,
// a verdict a line on its standard output, in any order. When it ends it is started again, after
// ever longer pauses; what it was asked by then has failed.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/child_process.h"
#include "server/filters/output_filter.h"

namespace nibble {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kOpenMax = 4096;                      // questions without an answer
constexpr size_t kUnsentMax = size_t{64} << 20;        // bytes
constexpr size_t kLineMax = 64 * 1024;                 // bytes of a verdict, at most
constexpr std::chrono::seconds kHungAfter{60};         // without a verdict on the oldest
constexpr std::chrono::milliseconds kPauseLeast{100};  // before a restart, doubled each time
constexpr std::chrono::milliseconds kPauseMost{10'000};

/// A running program and our end of its standard input and output.
struct Child {
  pid_t pid = -1;
  int socket = -1;
};

Result<Child> start_child(const std::vector<std::string>& words) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return make_error(ErrorCode::io, {.what = "a socket for an exec filter cannot be made"});
  const StartedProcess started =
      start_process({.words = words, .program = {}, .input = ends[1], .output = ends[1]});
  ::close(ends[1]);
  const Child child{.pid = started.number, .socket = ends[0]};
  if (started.error == 0) {
    ::fcntl(child.socket, F_SETFL, ::fcntl(child.socket, F_GETFL) | O_NONBLOCK);
    return child;
  }
  ::close(ends[0]);
  return make_error(ErrorCode::not_found,
                    {.what = concat("the program of exec:", words[0]),
                     .expected = "a program that can be started",
                     .found = std::generic_category().message(started.error)});
}

class ExecFilter final : public OutputFilter {
 public:
  ExecFilter(std::string_view command, std::vector<std::string> words, Child child,
             FilterReport report)
      : name_(concat("exec:", command)),
        words_(std::move(words)),
        report_(std::move(report)),
        child_(child),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    thread_ = std::thread([this] { run(); });
  }
  ~ExecFilter() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake();
    thread_.join();
    end_child();
    ::close(wake_);
  }

  std::string_view name() const override { return name_; }

  void ask(Question question, Answer answer) override {
    bool taken = false;
    {
      const std::lock_guard lock(mutex_);
      taken = running_ && open_.size() < kOpenMax && unsent_.size() < kUnsentMax;
      if (taken) {
        unsent_ += question->json(++last_id_) + "\n";
        open_.emplace(last_id_, Pending{std::move(answer), Clock::now()});
      }
    }
    if (taken)
      wake();
    else
      answer(FilterVerdict::failed);
  }

 private:
  struct Pending {
    Answer answer;
    Clock::time_point asked;
  };

  void run() {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (ending_) return;
      }
      if (child_.socket < 0 && !restart()) continue;
      if (!exchange()) lose();
    }
  }

  void wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  }

  /// Sleeps until there is something to do, at most `limit`; what of the child is ready.
  short wait(std::chrono::milliseconds limit, short events) const {
    pollfd polls[2] = {{.fd = wake_, .events = POLLIN, .revents = 0},
                       {.fd = child_.socket, .events = events, .revents = 0}};
    ::poll(polls, 2, static_cast<int>(limit.count()));
    uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t size = ::read(wake_, &ignored, sizeof ignored);
    return polls[1].revents;
  }

  /// Sends and reads once; false: the child is gone, or speaks another language.
  bool exchange() {
    bool more = false;
    {
      const std::lock_guard lock(mutex_);
      more = !unsent_.empty();
      if (!open_.empty() && Clock::now() - open_.begin()->second.asked > kHungAfter) return false;
    }
    const short ready =
        wait(std::chrono::milliseconds(1000), static_cast<short>(POLLIN | (more ? POLLOUT : 0)));
    if ((ready & POLLOUT) != 0) {
      const std::lock_guard lock(mutex_);
      const ssize_t sent = ::send(child_.socket, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (sent > 0) unsent_.erase(0, static_cast<size_t>(sent));
    }
    if ((ready & (POLLIN | POLLHUP | POLLERR)) == 0) return true;
    char bytes[16384];
    const ssize_t size = ::recv(child_.socket, bytes, sizeof bytes, 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) return false;
    heard_.append(bytes, static_cast<size_t>(size));
    return hear();
  }

  bool hear() {
    size_t begin = 0;
    for (size_t end = heard_.find('\n'); end != std::string::npos; end = heard_.find('\n', begin)) {
      uint64_t id = 0;
      const std::string_view line = std::string_view(heard_).substr(begin, end - begin);
      begin = end + 1;
      if (line.empty()) continue;
      if (line.size() > kLineMax) return false;
      const FilterVerdict verdict = verdict_in(line, &id);
      Answer answer;
      {
        const std::lock_guard lock(mutex_);
        const auto found = open_.find(id);
        if (found == open_.end()) return false;
        answer = std::move(found->second.answer);
        open_.erase(found);
      }
      answer(verdict);
      pause_ = kPauseLeast;  // it works
    }
    heard_.erase(0, begin);
    return heard_.size() <= kLineMax;
  }

  /// Fails every open question; the program ends and is started again after a pause.
  void lose() {
    std::map<uint64_t, Pending> lost;
    {
      const std::lock_guard lock(mutex_);
      running_ = false;
      lost.swap(open_);
      unsent_.clear();
    }
    for (auto& [id, pending] : lost) pending.answer(FilterVerdict::failed);
    heard_.clear();
    end_child();
    report_(concat("filter ", name_, " ended, hung or spoke nonsense; starting it again in ",
                   pause_.count(), " ms"));
    restart_at_ = Clock::now() + pause_;
    pause_ = std::min(pause_ * 2, kPauseMost);
  }

  bool restart() {
    const auto now = Clock::now();
    if (now < restart_at_) {
      wait(std::chrono::duration_cast<std::chrono::milliseconds>(restart_at_ - now) +
               std::chrono::milliseconds(1),
           0);
      return false;
    }
    auto child = start_child(words_);
    if (!child.ok()) {
      report_(child.error().message);
      restart_at_ = now + pause_;
      pause_ = std::min(pause_ * 2, kPauseMost);
      return false;
    }
    child_ = child.value();
    const std::lock_guard lock(mutex_);
    running_ = true;
    return true;
  }

  /// It reads the end of its input; what does not end then is killed.
  void end_child() {
    if (child_.socket >= 0) ::close(child_.socket);
    child_.socket = -1;
    if (child_.pid < 0) return;
    for (int i = 0; i < 20; ++i) {
      if (::waitpid(child_.pid, nullptr, WNOHANG) != 0) {
        child_.pid = -1;
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ::kill(-child_.pid, SIGKILL);
    ::waitpid(child_.pid, nullptr, 0);
    child_.pid = -1;
  }

  std::string name_;
  std::vector<std::string> words_;
  FilterReport report_;
  // The members below belong to the thread.
  Child child_;
  std::string heard_;
  std::chrono::milliseconds pause_ = kPauseLeast;
  Clock::time_point restart_at_;

  int wake_;
  std::mutex mutex_;
  bool running_ = true;
  bool ending_ = false;
  uint64_t last_id_ = 0;
  std::string unsent_;
  std::map<uint64_t, Pending> open_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<OutputFilter>> make_exec_filter(std::string_view command,
                                                       FilterReport report) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < command.size();) {
    const size_t end = std::min(command.find(' ', begin), command.size());
    if (end > begin) words.emplace_back(command.substr(begin, end - begin));
    begin = end + 1;
  }
  if (words.empty())
    return make_error(ErrorCode::invalid_argument,
                      {.what = "exec filter", .expected = "exec:PROGRAM [ARGUMENT...]"});
  const Child child = TRY(start_child(words));
  return std::unique_ptr<OutputFilter>(
      std::make_unique<ExecFilter>(command, std::move(words), child, std::move(report)));
}

}  // namespace nibble
