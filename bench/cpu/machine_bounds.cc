// Loops that do nothing but FMAs, or nothing but loads.
#include "bench/cpu/machine_bounds.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nibble::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr int kRounds = 5000;
constexpr int kChains = 12;  // independent sums: more than latency times throughput

#if defined(__x86_64__)
__attribute__((target("avx512f"))) float run_avx512() {
  __m512 sum[kChains];
  for (auto& s : sum) s = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(0.5F);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm512_fmadd_ps(a, sum[j], a);
  }
  float out = 0.0F;
  for (const auto& s : sum) out += s[0];
  return out;
}

__attribute__((target("avx2,fma"))) float run_avx2() {
  __m256 sum[kChains];
  for (auto& s : sum) s = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(0.5F);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm256_fmadd_ps(a, sum[j], a);
  }
  float out = 0.0F;
  for (const auto& s : sum) out += s[0];
  return out;
}

__attribute__((target("avx512f,avx512vnni"))) int run_vnni() {
  __m512i sum[kChains];
  for (auto& s : sum) s = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi32(0x01020304);
  for (int i = 0; i < kRounds; ++i) {
    asm volatile("" : "+v"(a));  // else the loop is a multiplication
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm512_dpbusd_epi32(sum[j], a, a);
  }
  int out = 0;
  for (const auto& s : sum) out += _mm512_reduce_add_epi32(s);
  return out;
}

__attribute__((target("avx2,avxvnni"))) int run_avx_vnni() {
  __m256i sum[kChains];
  for (auto& s : sum) s = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi32(0x01020304);
  for (int i = 0; i < kRounds; ++i) {
    asm volatile("" : "+x"(a));
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm256_dpbusd_avx_epi32(sum[j], a, a);
  }
  int out = 0;
  for (const auto& s : sum) out += _mm256_extract_epi32(s, 0);
  return out;
}

__attribute__((target("avx512f,avx512bf16"))) float run_bf16() {
  __m512 sum[kChains];
  for (auto& s : sum) s = _mm512_setzero_ps();
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F003F00));
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm512_dpbf16_ps(sum[j], a, a);
  }
  float out = 0.0F;
  for (const auto& s : sum) out += s[0];
  return out;
}

__attribute__((target("avx2"))) int run_maddubs() {
  __m256i sum[kChains];
  for (auto& s : sum) s = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi32(0x01020304);
  for (int i = 0; i < kRounds; ++i) {
    asm volatile("" : "+x"(a));
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sum[j] = _mm256_add_epi16(sum[j], _mm256_maddubs_epi16(a, a));
  }
  int out = 0;
  for (const auto& s : sum) out += _mm256_extract_epi32(s, 0);
  return out;
}
#endif

}  // namespace

double fastest_s(double budget_s, const std::function<void()>& call) {
  double fastest = 1e30;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    call();
    fastest = std::min(fastest, seconds_since(start));
  } while (seconds_since(begin) < budget_s);
  return fastest;
}

double fma_per_s(std::string_view isa) {
  volatile float sink = 0.0F;
#if defined(__x86_64__)
  if (isa == "avx512")
    return 16.0 * kChains * kRounds / fastest_s(0.3, [&] { sink = run_avx512(); });
  if (isa == "avx2" || isa == "avxvnni")
    return 8.0 * kChains * kRounds / fastest_s(0.3, [&] { sink = run_avx2(); });
#endif
  (void)isa;
  (void)sink;
  return 0.0;
}

double int8_per_s(std::string_view isa) {
  volatile int sink = 0;
#if defined(__x86_64__)
  if (isa == "avx512") return 64.0 * kChains * kRounds / fastest_s(0.3, [&] { sink = run_vnni(); });
  if (isa == "avxvnni")
    return 32.0 * kChains * kRounds / fastest_s(0.3, [&] { sink = run_avx_vnni(); });
  if (isa == "avx2")
    return 32.0 * kChains * kRounds / fastest_s(0.3, [&] { sink = run_maddubs(); });
#endif
  (void)sink;
  return 0.0;
}

double bf16_per_s(std::string_view isa) {
  volatile float sink = 0.0F;
#if defined(__x86_64__)
  if (isa == "avx512") return 32.0 * kChains * kRounds / fastest_s(0.3, [&] { sink = run_bf16(); });
#endif
  (void)sink;
  return fma_per_s(isa);
}

double read_bytes_per_s(size_t buffer_bytes) {
  constexpr size_t kStreams = 8;                    // as the one-row product reads eight panels
  constexpr size_t kStreamWords = size_t{1} << 17;  // 8 MB in all, timed as one
  constexpr size_t kPart = kStreams * kStreamWords;
  const std::vector<uint64_t> buffer(buffer_bytes / sizeof(uint64_t), 1);
  std::vector<double> fastest(buffer.size() / kPart, 1e30);
  volatile uint64_t sink = 0;
  const size_t rounds = std::max<size_t>(30, 1000 / fastest.size());
  for (size_t round = 0; round < rounds; ++round)
    for (size_t part = 0; part < fastest.size(); ++part) {
      const uint64_t* words = &buffer[part * kPart];
      const double s = fastest_s(0.0, [&] {
        uint64_t sums[kStreams] = {};
        for (size_t i = 0; i < kStreamWords; i += 8)  // one word brings the whole line
          for (size_t j = 0; j < kStreams; ++j) sums[j] += words[j * kStreamWords + i];
        for (const uint64_t sum : sums) sink = sink + sum;
      });
      fastest[part] = std::min(fastest[part], s);
    }
  const double all_s = std::accumulate(fastest.begin(), fastest.end(), 0.0);
  return static_cast<double>(fastest.size() * kPart * sizeof(uint64_t)) / all_s;
}

}  // namespace nibble::bench
