// RoundedDraft: the numbers of the layer that drafts in the places of draft_places.h. Scales are
// chosen by one pass over all that is rounded; codes are made as they are read, so that no second
// copy of the layer is ever in memory. The scales are the plain choice by the largest magnitude;
// better ones, from data, are the quantizer's.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/tensor_source.h"
#include "model/config/config.h"
#include "model/weights/weights.h"
#include "tensor/nvfp4.h"

namespace nibble {

class RoundedDraft final : public TensorSource {
 public:
  /// The layer of `weights`, which have one (CHECK), as `config` wants it. Use make().
  RoundedDraft(Weights weights, const ModelConfig& config);
  /// Reads all that will be rounded once, for its largest magnitudes. The tensors of `weights` must
  /// outlive the result. Errors: those of check_draft_places; io; corrupt for weights that are not
  /// finite.
  static Result<std::unique_ptr<RoundedDraft>> make(Weights weights, const ModelConfig& config,
                                                    ThreadPool& pool);

  /// The model with the layer rounded; this source must outlive them.
  Weights weights() const { return base_.with_mtp(*this, places_); }

  const TensorEntry* find(std::string_view name) const override;
  Result<void> read_bytes(const TensorEntry& entry, int64_t begin,
                          std::span<std::byte> out) const override;
  /// Only what is not made here lies in files.
  MappedBytes mapped(const TensorEntry& entry) const override {
    return base_.tensors().mapped(entry);
  }
  std::shared_ptr<MappedFiles> mapping() const override { return base_.tensors().mapping(); }

 private:
  /// A linear that is made of another one.
  struct Made {
    const LinearSource* from = nullptr;  // a linear of base_
    const LinearSource* to = nullptr;    // its place in places_
    size_t group = 0;                    // number of the group of linears with one scale
    float scale = 1.0F;                  // fp8
    GlobalScale global;                  // nvfp4
    SourceType source = SourceType::f32;
    DType stored = DType::f32;           // type of `from`
    std::vector<std::byte> maxima = {};  // nvfp4: the largest magnitude of each block, in that type
    std::vector<std::byte> scales = {};  // and its E4M3 scale, which takes its place
    bool rounds() const {
      return from->scheme.weights == WeightFormat::plain &&
             to->scheme.weights != WeightFormat::plain;
    }
  };
  /// A tensor of one.
  enum class Part : uint8_t { values, block_scales, numbers };
  struct Place {
    TensorEntry entry;
    Part part = Part::values;
    size_t made = 0;
    std::vector<std::byte> numbers = {};
  };

  void pair(const LinearSource& from, const LinearSource& to, size_t group);
  bool is_gathered(const Made& made) const { return made.to == &places_.head && !tokens_.empty(); }
  struct Piece {
    Made* made;
    int64_t begin, rows;
  };
  /// Rows that are rounded or looked at together.
  static int64_t piece_rows(const LinearSource& linear);
  std::vector<Piece> pieces_to_round();
  struct Scratch {
    std::vector<std::byte> rows, maxima;
  };
  Result<float> magnitude_of(const Piece& piece, Scratch& scratch) const;
  Result<void> scale_groups(ThreadPool& pool, size_t groups);
  static void scale_blocks(Made& made);
  /// The bytes of a tensor that is in memory; none of others.
  std::span<const std::byte> held(const Place& place) const;
  Result<void> list_tensors();
  Result<std::vector<float>> channel_scales(const Made& made) const;
  void put_rows(size_t made, const std::string& name, DType dtype, int64_t cols);
  void put_numbers(size_t made, const std::string& name, std::span<const float> values);
  void put(const std::string& name, DType dtype, const Shape& shape, Place place);
  /// Rows [begin, begin + n) of a linear: those of its source, or of the tokens that stand there.
  /// Calls act(first row of the source, rows, first row here) for each run of adjacent ones.
  template <typename Act>
  Result<void> each_run(const Made& made, int64_t begin, int64_t n, const Act& act) const;
  /// Rows of `stored`, which belongs to made.from, as they are.
  Result<void> copy_rows(const Made& made, const StoredBytes& stored, int64_t begin,
                         std::span<std::byte> out) const;
  Result<void> make_rows(const Place& place, int64_t begin, std::span<std::byte> out) const;
  /// Rounds a row of made.from, of made.stored, to one of made.to; `wide` has room for it.
  static void round_row(const Made& made, int64_t row, const std::byte* from, std::span<float> wide,
                        uint8_t* to);

  Weights base_;
  MtpSources places_;
  std::vector<int32_t> tokens_;  // the same as ModelConfig::draft_tokens
  std::vector<Made> made_;
  std::unordered_map<std::string, Place> own_;  // by name
};

}  // namespace nibble
