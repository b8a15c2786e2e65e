// Loaded into a program with LD_PRELOAD: at SIGUSR1 the program's card meets the fault that
// CARD_FAULT names (trap, illegal_address, spin). The program itself has no way to fail for a test.
#include <semaphore.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "backend/cuda/faults/fatal_kernels.h"

namespace nibble::cuda {
namespace {

sem_t asked;

Fatal named(std::string_view name) {
  if (name == "trap") return Fatal::trap;
  return name == "spin" ? Fatal::spin : Fatal::illegal_address;
}

/// The card is that of the program: both runtimes use its primary context.
void wait_and_fail(Fatal kind) {
  while (sem_wait(&asked) != 0) {
  }
  const cudaError_t status = run_fatal_kernel(kind);
  std::fprintf(stderr, "fault launched: %s\n", cudaGetErrorString(status));
}

[[gnu::constructor]] void prepare() {
  const char* name = std::getenv("CARD_FAULT");
  if (name == nullptr || sem_init(&asked, 0, 0) != 0) return;
  struct sigaction action = {};
  action.sa_handler = [](int) { sem_post(&asked); };
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  std::thread(wait_and_fail, named(name)).detach();
}

}  // namespace
}  // namespace nibble::cuda
