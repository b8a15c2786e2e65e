// For tests: what the weights of a model take in this backend, tensor by tensor.
#pragma once

#include "backend/cpu/weight_bytes.h"

namespace nibble::cpu {

/// Adds up what the tensors of a model take in the memory of this backend.
class WeightSum {
 public:
  explicit WeightSum(const Weights& weights) : weights_(weights) {
    linear(weights.head());
    if (weights.head().values != weights.embedding().values)
      matrices_ += embedding_bytes(weights.embedding(), stored(weights.embedding()));
    vector(weights.final_norm());
    for (const LayerSources& one : weights.layers()) layer(one);
    if (weights.mtp()) mtp(*weights.mtp());
    if (weights.vision())
      visit_vision(
          *weights.vision(), [&](const LinearSource& source) { linear(source); },
          [&](const VectorSource& source) { vector(source); });
  }
  int64_t matrices() const { return matrices_; }
  int64_t bytes() const { return matrices_ + vectors_; }

 private:
  DType stored(const LinearSource& source) const { return weights_.values_of(source).entry->dtype; }
  void linear(const LinearSource& source) {
    if (source.present()) matrices_ += linear_bytes(source, stored(source));
  }
  void vector(const VectorSource& source) {
    if (source.present()) vectors_ += vector_bytes(source);
  }
  void mlp(const MlpSources& sources) {
    for (const LinearSource* part : {&sources.gate, &sources.up, &sources.down}) linear(*part);
  }
  void layer(const LayerSources& l) {
    const AttentionSources& a = l.attention;
    const DeltaNetSources& d = l.delta_net;
    for (const LinearSource* part : {&a.q, &a.k, &a.v, &a.o, &d.qkv, &d.z, &d.b, &d.a, &d.out,
                                     &l.moe.router, &l.moe.shared_gate})
      linear(*part);
    for (const VectorSource* part :
         {&l.input_norm, &l.post_norm, &a.q_norm, &a.k_norm, &d.conv, &d.dt_bias, &d.norm})
      vector(*part);
    if (d.a_log.present()) vectors_ += decay_bytes(d.a_log);
    mlp(l.dense_mlp);
    mlp(l.moe.shared);
    for (const MlpSources& expert : l.moe.experts) mlp(expert);
  }
  void mtp(const MtpSources& m) {
    for (const VectorSource* part : {&m.embedding_norm, &m.hidden_norm, &m.norm}) vector(*part);
    for (const LinearSource* part : {&m.joined, &m.head}) linear(*part);
    layer(m.layer);
  }

  const Weights& weights_;
  int64_t matrices_ = 0, vectors_ = 0;
};

}  // namespace nibble::cpu
