// SimulatedText: the text of a client of the simulation, as the model itself goes on with it:
// without pages, slots, batches or drafts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/concat.h"
#include "engine/engine_core.h"
#include "engine/testing/fake_grammar.h"
#include "engine/testing/real_grammar.h"
#include "engine/testing/simulation_media.h"

namespace nibble {

/// A place in a text under a grammar of either kind.
class GrammarPlace {
 public:
  explicit GrammarPlace(FakeGrammar::Place place) : place_(place) {}
  explicit GrammarPlace(RealGrammar place) : place_(std::move(place)) {}

  void add(int32_t token) {
    std::visit([&](auto& place) { place.add(token); }, place_);
  }
  std::optional<int32_t> only() const {
    return std::visit([](const auto& place) { return place.only(); }, place_);
  }
  bool may_follow(int32_t token) const {
    return std::visit([&](const auto& place) { return place.may_follow(token); }, place_);
  }
  std::vector<uint32_t> mask() const {
    return std::visit([](const auto& place) { return place.mask(); }, place_);
  }
  bool is_real() const { return std::holds_alternative<RealGrammar>(place_); }

 private:
  std::variant<FakeGrammar::Place, RealGrammar> place_;
};

struct SimulatedText {
  /// The text of a prompt.
  SimulatedText(const SequenceRequest& request, const FakeBackend::Model& model)
      : values(std::make_shared<RequestValues>(request)), prefix(model), layer(model) {
    for (size_t i = 0; i < request.prompt.size(); ++i) {
      layer.add(prefix.state(), values->prompt_entry(i), Arithmetic::prompt);
      prefix.add_value(values->prompt(i), Arithmetic::prompt);
    }
  }

  std::shared_ptr<const RequestValues> values;
  FakeBackend::Prefix prefix;
  FakeBackend::DraftPrefix layer;       // the prefix that the layer that drafts has
  std::optional<GrammarPlace> grammar;  // absent: every token may follow
  std::vector<int32_t> tokens;          // generated ones

  void add(int32_t token) {
    layer.add(prefix.state(), values->generated_entry(token, tokens.size()),
              Arithmetic::generation);
    prefix.add_value(values->generated(token, tokens.size()), Arithmetic::generation);
    tokens.push_back(token);
    if (grammar) grammar->add(token);
  }

  /// The next token under these parameters.
  int32_t next(Sampler& sampler, const SequenceRequest& request) const {
    const auto logits = FakeBackend::logits_of(prefix.hash());
    const std::vector<uint32_t> mask = grammar ? grammar->mask() : std::vector<uint32_t>();
    return sampler
        .sample(logits, request.sampling, {request.prompt, tokens},
                request.prompt.size() + tokens.size(), mask)
        .value()
        .token;
  }

  /// The fault of drafts that were made for this text: a token that the model's layer would not say
  /// or the grammar does not force, or that may not follow. Empty: none.
  std::string fault_of(const EngineCore::Drafts& drafts, const FakeBackend::Model& model) const {
    SimulatedText text = *this;
    for (const int32_t token : drafts.tokens) {
      std::optional<int32_t> only;
      if (text.grammar) only = text.grammar->only();
      if (text.grammar && !text.grammar->may_follow(token))
        return concat("drafts ", token, ", which may not follow");
      if (drafts.by == Proposer::grammar && token != only)
        return concat("drafts ", token, ", which nothing forces");
      const int32_t expected = drafts.by == Proposer::model
                                   ? FakeBackend::drafted_token(model, text.layer.hash())
                                   : token;
      if (token != expected) return concat("drafts ", token, " and not ", expected);
      text.layer.add_draft(text.values->generated_entry(token, text.tokens.size()));
      text.tokens.push_back(token);
      if (text.grammar) text.grammar->add(token);
    }
    return {};
  }
};

}  // namespace nibble
