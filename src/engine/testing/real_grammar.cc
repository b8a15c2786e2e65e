// The oracle is the constraint itself, used in the plainest way: a new one for each text.
#include "engine/testing/real_grammar.h"

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/slow_constraint.h"
#include "engine/sample/token_bits.h"
#include "engine/testing/fake_backend.h"

namespace nibble {
namespace {

static_assert(RealGrammar::kEnd == FakeBackend::kVocab - 1);

GrammarCompiler::Vocabulary vocabulary() {
  std::vector<std::string> tokens;
  for (const char c : std::string("{}[]\":, -;0123456789abcdefghijklmnopqrstuvwxyz"))
    tokens.emplace_back(1, c);
  for (const char* longer : {"{\"", "\":", "\",", "true", "null", "ab", "cd-1"})
    tokens.emplace_back(longer);
  tokens.resize(FakeBackend::kVocab);
  return {tokens, {RealGrammar::kEnd}, {}};
}

const std::shared_ptr<const Grammar>& compiled(int number) {
  using Kind = GrammarSource::Kind;
  static const auto all = [] {
    // A life is the same each time only if no mask counts as long on a busy machine.
    GrammarCompiler compiler(vocabulary, {.mask_time_max = std::chrono::hours(1)});
    std::array<std::shared_ptr<const Grammar>, RealGrammar::kCount> made;
    made[0] = compiler.compile({.kind = Kind::regex, .text = "([a-f]{3}-[0-9]{2};)*"}).value();
    made[1] =
        compiler.compile({.kind = Kind::ebnf, .text = R"(root ::= "a" root "b" | "cd-1")"}).value();
    made[2] = compiler
                  .compile({.kind = Kind::json_schema,
                            .text = R"({"type":"array","items":{"type":"object","properties":)"
                                    R"({"a":{"enum":["b","cd"]},"n":{"type":"integer"}},)"
                                    R"("required":["a","n"],"additionalProperties":false}})"})
                  .value();
    return made;
  }();
  return all[static_cast<size_t>(number)];
}

/// Waits for what another thread makes.
class Patient final : public SlowConstraint {
 public:
  explicit Patient(std::unique_ptr<TokenConstraint> constraint)
      : kept_(std::move(constraint)), inner_(dynamic_cast<SlowConstraint*>(kept_.get())) {
    CHECK(inner_ != nullptr, "masks of a grammar are made by threads");
  }
  Next next(std::span<const int32_t> drafted) override {
    while (inner_->next(drafted) != Next::ready) std::this_thread::yield();
    return Next::ready;
  }
  Next find_forced(size_t most) override {
    while (inner_->find_forced(most) != Next::ready) std::this_thread::yield();
    return Next::ready;
  }
  Drafts drafts() const override { return inner_->drafts(); }
  MaskState mask(std::span<const int32_t> drafted, std::span<uint32_t> bits) override {
    return inner_->mask(drafted, bits);
  }
  std::optional<size_t> accept(std::span<const int32_t> tokens) override {
    return inner_->accept(tokens);
  }
  void rollback(size_t count) override { inner_->rollback(count); }
  size_t fitting(std::span<const int32_t> drafted) override { return inner_->fitting(drafted); }
  std::vector<int32_t> forced(size_t most) override { return inner_->forced(most); }

 private:
  std::unique_ptr<TokenConstraint> kept_;
  SlowConstraint* inner_;
};

}  // namespace

RealGrammar::RealGrammar(int number) : grammar_(compiled(number)) {}

std::unique_ptr<TokenConstraint> RealGrammar::constraint() const {
  return std::make_unique<Patient>(make_grammar_constraint(grammar_, -1));
}

const std::vector<uint32_t>& RealGrammar::mask() const {
  const auto [found, fresh] = masks_->try_emplace(tokens_);
  if (!fresh) return found->second;
  std::vector<uint32_t>& bits = found->second;
  bits.assign((FakeBackend::kVocab + 31) / 32, ~0U);
  const auto plain = make_grammar_constraint(grammar_, -1);
  for (const int32_t token : tokens_)
    if (plain->accept(std::span(&token, 1))) return bits;  // it has ended: anything may follow
  plain->mask({}, bits);
  return bits;
}

bool RealGrammar::may_follow(int32_t token) const { return has_token(mask(), token); }

std::optional<int32_t> RealGrammar::only() const {
  std::optional<int32_t> only;
  for (int32_t token = 0; token < FakeBackend::kVocab; ++token) {
    if (!may_follow(token)) continue;
    if (only) return std::nullopt;
    only = token;
  }
  return only;
}

}  // namespace nibble
