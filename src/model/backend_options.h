// BackendOptions: how a backend computes, and where its weights are. Each of its faces: backend.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/kv_format.h"
#include "tensor/quant_scheme.h"

namespace nibble {

/// The precision of activations that are multiplied by a weight matrix. automatic: int8 on a CPU;
/// on a card bf16, or declared where its products of 4-bit codes were proved
/// (backend/cuda/activations/activation_rule.h). bf16: inputs of linears rounded to BF16. declared:
/// exactly what the checkpoint declares, 4-bit activations included. f32: nothing rounded. int8, on
/// a CPU: groups of 16 as 8-bit integers with an F32 scale where weights are NVFP4, BF16 where they
/// are FP8, nothing rounded elsewhere.
enum class Activations : uint8_t { automatic, bf16, declared, f32, int8 };
std::string_view activations_name(Activations mode);
/// The same, and how declared inputs of 4 bits get their scales where that is not amax.
std::string activations_words(Activations mode, InputScales scales);

/// The format in which keys and values are kept. automatic: BF16 on a card (F32 with
/// Activations::f32), F32 on a CPU. fp8: E4M3 with scale 1, finite numbers beyond its range become
/// the largest it has. The formats of 4 bits are defined in model/kv_four_bits.h. The reference
/// keeps the rounded numbers in F32.
enum class KvCache : uint8_t { automatic, bf16, fp8, turboquant_4bit_nc, nvfp4 };
inline constexpr KvCache kKvCaches[] = {KvCache::automatic, KvCache::bf16, KvCache::fp8,
                                        KvCache::turboquant_4bit_nc, KvCache::nvfp4};
std::string_view kv_cache_name(KvCache kind);

/// The format in which the recurrent state of a sequence is kept between passes; arithmetic on it
/// is F32. bf16: rounded to nearest even where state_rounding_rows (model/batch.h) says; on a CPU
/// the rounded numbers lie in F32.
enum class StateCache : uint8_t { f32, bf16 };
std::string_view state_cache_name(StateCache kind);

/// A smaller card to imitate; zeros limit nothing.
struct CardLimit {
  int64_t memory_bytes = 0;       // bytes that this process may take, context included
  int32_t shared_bytes = 0;       // shared memory of one thread block
  bool portable_kernels = false;  // no instructions of newer architectures
};

/// It is told how many bytes of the weights are loaded; any thread calls it, one at a time.
using LoadingReport = std::function<void(int64_t done, int64_t total)>;

/// The place of a checkpoint's weights while a CPU computes. copied: interleaved, in
/// memory of this process. mapped: in the files, in the page cache (Checkpoint::map_files), as far
/// as kernels can read them there; a start is fast and nothing is in memory twice, products of few
/// rows are slower. automatic: routed experts and the rows of the embedding mapped, which are most
/// of the bytes and a small part of what a token reads, and the rest copied; all copied where no
/// files are mapped.
enum class WeightPlace : uint8_t { automatic, mapped, copied };
/// If mapped weights are more than the memory, nothing is loaded, or experts are read from the
/// disk as they are wanted.
enum class BeyondMemory : uint8_t { refused, streamed };

struct BackendOptions {
  Activations activations = Activations::automatic;
  InputScales input_scales = InputScales::amax;  // of inputs that are rounded to 4 bits
  KvCache kv_cache = KvCache::automatic;
  StateCache state = StateCache::f32;
  /// KvCache::fp8 uses these scales of each attention layer (model/pages/kv_scales.h); all are
  /// 1 where it is empty.
  std::vector<KvScale> kv_scales;
  CardLimit card;
  int threads = 0;                // 0: one per usable core
  std::string isa;                // of cpu::usable_kernels(); empty: the fastest usable
  int64_t host_memory_bytes = 0;  // bytes that weights on a CPU may take; 0: no limit
  WeightPlace weights = WeightPlace::automatic;
  BeyondMemory beyond_memory = BeyondMemory::refused;
  LoadingReport loading;  // on a CPU; may be empty
};

/// Bytes of weights in host memory.
struct HostWeights {
  int64_t copied = 0;         // in memory of this process
  int64_t mapped = 0;         // in files; the page cache holds them
  int64_t routed_mapped = 0;  // the part of `mapped` that is routed experts
  bool streamed = false;      // BeyondMemory::streamed, and they are more than the memory
};

}  // namespace nibble
