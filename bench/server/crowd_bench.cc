// crowd_bench [IDLE SLOW]: what a crowd does to the others: the time between tokens of 32 streams,
// alone and beside IDLE open connections that ask nothing and SLOW streams whose readers take 256
// bytes every 50 ms. The backend says 'x' after 20 ms whoever is in the batch, so that all there is
// to see is the server. The crowd and the others are a process each, so that neither's own work
// holds up the other's reading.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "scripted.h"

namespace nibble::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kOthers = 32;
constexpr int kTokens = 400;
constexpr int kPassMs = 20;
constexpr int kDrainMs = 50;
constexpr int kRounds = 3;

struct Crowd {
  int idle = 2000;
  int slow = 200;
};

/// Percentiles of the gaps between tokens, ms.
struct Gaps {
  double p50 = 0, p99 = 0, worst = 0;
};

Gaps summary(std::vector<double> gaps) {
  CHECK(!gaps.empty());
  std::ranges::sort(gaps);
  return {gaps[gaps.size() / 2], gaps[gaps.size() * 99 / 100], gaps.back()};
}

/// Reads the others to their end.
Gaps read_others(const std::vector<int>& others) {
  std::vector<pollfd> polls;
  for (const int socket : others) polls.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  std::vector<Clock::time_point> last(others.size());
  std::vector<double> gaps;
  for (size_t open = others.size(); open > 0;) {
    CHECK(::poll(polls.data(), polls.size(), 10) >= 0);
    const auto now = Clock::now();
    for (size_t i = 0; i < polls.size(); ++i) {
      if ((polls[i].revents & POLLIN) == 0) continue;
      char bytes[65536];
      const ssize_t size = ::recv(polls[i].fd, bytes, sizeof bytes, 0);
      CHECK(size > 0, "the server hung up");
      const std::string_view text(bytes, static_cast<size_t>(size));
      const int pieces = count_pieces(text);
      const double ms = std::chrono::duration<double, std::milli>(now - last[i]).count();
      if (pieces > 0 && last[i] != Clock::time_point()) gaps.push_back(ms / pieces);
      if (pieces > 0) last[i] = now;
      if (text.find("[DONE]") == std::string_view::npos) continue;
      polls[i].fd = -1;
      --open;
    }
  }
  return summary(std::move(gaps));
}

/// Comes, says so, and reads a little now and then.
void crowd_in(const Crowd& crowd, uint16_t port, const Client& self) {
  std::vector<int> idle, slow;
  for (int i = 0; i < crowd.idle; ++i) {
    idle.push_back(connect_to(port));
    send_text(idle.back(), testing::get("/health"));
    char bytes[4096];
    CHECK(::recv(idle.back(), bytes, sizeof bytes, 0) > 0);
  }
  for (int i = 0; i < crowd.slow; ++i) slow.push_back(open_stream(port, kTokens * 2, i));
  self.tell('r');
  self.stay(kDrainMs, [&] {
    char bytes[256];
    for (const int socket : slow) (void)::recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
  });
}

void visit(uint16_t port, const Client& self) {
  std::vector<int> others;
  for (int i = 0; i < kOthers; ++i) others.push_back(open_stream(port, kTokens, -1 - i));
  self.tell(read_others(others));
}

Gaps measure(const Crowd& crowd) {
  const Client crowding([&](uint16_t port, const Client& self) { crowd_in(crowd, port, self); });
  const Client visiting(visit);
  const Running server(start_server(engine_settings(kOthers + crowd.slow, 2 * kTokens), kPassMs));
  crowding.come(server.port());
  CHECK(crowding.hear<char>() == 'r');
  visiting.come(server.port());
  return visiting.hear<Gaps>();
}

int run(const Crowd& crowd) {
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::vector<double> ratios;
  std::printf("time between tokens of %d streams, ms: p50 p99 worst\n", kOthers);
  for (int round = 0; round < kRounds; ++round) {
    const Gaps alone = measure({.idle = 0, .slow = 0});
    const Gaps beside = measure(crowd);
    std::printf(
        "alone %.2f %.2f %.2f   beside %d idle and %d slow %.2f %.2f %.2f   p99 by %+.1f %%\n",
        alone.p50, alone.p99, alone.worst, crowd.idle, crowd.slow, beside.p50, beside.p99,
        beside.worst, 100.0 * (beside.p99 / alone.p99 - 1.0));
    ratios.push_back(beside.p99 / alone.p99);
  }
  std::ranges::sort(ratios);
  std::printf("p99 moves by %+.1f %% (median of %d rounds)\n",
              100.0 * (ratios[ratios.size() / 2] - 1.0), kRounds);
  return 0;
}

}  // namespace
}  // namespace nibble::bench

int main(int count, char** words) {
  nibble::bench::Crowd crowd;
  if (count == 3) crowd = {.idle = std::atoi(words[1]), .slow = std::atoi(words[2])};
  const bool sane = crowd.idle >= 0 && crowd.idle <= 10000 && crowd.slow >= 0 && crowd.slow <= 1000;
  if ((count == 1 || count == 3) && sane) return nibble::bench::run(crowd);
  std::fprintf(stderr, "usage: crowd_bench [IDLE 0..10000] [SLOW 0..1000]\n");
  return 2;
}
