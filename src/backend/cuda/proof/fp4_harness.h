// Compares the products of 4-bit codes and of FP8 that a card makes with those of this program, and
// gives the facts that such a proof belongs to. Present in every build; where there is no CUDA
// toolkit, absent.cc says so.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/activations/products_choice.h"
#include "backend/cuda/ops/quantized/fp4_cases.h"
#include "base/result.h"
#include "model/backend.h"

namespace nibble {

struct CardIdentity {
  std::string name;        // "NVIDIA GeForce RTX 5090"
  std::string uuid;        // 32 hexadecimal digits
  int32_t capability = 0;  // times ten
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  int32_t driver_cuda = 0;   // 13000: the newest CUDA that the driver runs
  int32_t runtime_cuda = 0;  // that this program was built with
  std::string code;          // of this program, that runs there: "sm_120f"
  bool has_fp4_instruction = false;
  bool has_tensor_memory = false;  // and products of codes by it, once a receipt has passed
};
/// The first card, or as much of it as `limit` leaves. Errors: as describe_cuda_device.
Result<CardIdentity> card_identity(const CardLimit& limit);

struct Fp4HarnessResult {
  int64_t cases = 0;        // fragments tried, each with 128 sums
  int64_t different = 0;    // sums that are not what they must be
  int32_t first_case = 0;   // the lowest number of a case that has one
  double milliseconds = 0;  // from the first launch to the last comparison

  bool equal() const { return cases > 0 && different == 0; }
  /// "22144 fragments, every sum as computed" or what is wrong.
  std::string text() const;
};
/// Compares the card's instruction, or with Fp4Products::software what computes it there, with the
/// software on all cases of fp4_cases.h, and a part of them with the host; where the card has an
/// instruction for E4M3 numbers, that with double on all cases of fp8_cases.h. `fault` plants a
/// mistake. Errors: as card_identity; unsupported for an instruction that the card does not have;
/// no_memory.
Result<Fp4HarnessResult> run_fp4_harness(Fp4Products way,
                                         cuda::Fp4Fault fault = cuda::Fp4Fault::none);

}  // namespace nibble
