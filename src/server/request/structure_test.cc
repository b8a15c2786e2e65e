// Structured output over HTTP: the model would say its script, the structure decides what it may
// say.
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "engine/engine_core.h"
#include "engine/testing/fake_backend.h"
#include "grammar/grammar_compiler.h"
#include "server/testing/test_server.h"

namespace nibble {
namespace {

using namespace testing;

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"w","parameters":{"type":"object",)"
    R"("properties":{"at":{"enum":["Rome"]}},"required":["at"]}}},)"
    R"({"type":"function","function":{"name":"now"}}])";

class StructureTest : public ServerTest {
 protected:
  std::string content(const std::string& fields) {
    return at(at(choice(chat(fields)), "message"), "content").as_string();
  }
  Json refused(const std::string& fields) {
    const auto [status, body] =
        ask(post(kChat, concat(R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":50)",
                               fields, "}")));
    EXPECT_EQ(status, 400) << body;
    return at(parse_json(body, "the answer").value(), "error");
  }
};

TEST_F(StructureTest, EverySpelling) {
  start("thinking as I like</think>\n\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
  const std::string schema =
      R"({"type":"object","properties":{"a":{"enum":[1]}},"required":["a"]})";
  for (const std::string& asked :
       {concat(R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)",
               schema, "}}"),
        concat(R"(,"response_format":{"type":"json_object","schema":)", schema, "}"),
        concat(R"(,"guided_json":)", schema),
        concat(R"(,"structured_outputs":{"json":)", schema, "}"),
        concat(R"(,"json_schema":)", Json(schema).dump())}) {
    const Json made = parse_json(content(concat(R"(,"max_tokens":300)", asked)), asked).value();
    EXPECT_EQ(at(made, "a").as_int(), 1) << asked;
  }
  for (const char* asked :
       {R"(,"guided_choice":["no"])", R"(,"structured_outputs":{"choice":["no"]})",
        R"(,"regex":"no")", R"(,"structured_outputs":{"regex":"n[o]"})",
        R"(,"grammar":"root ::= \"no\"")", R"(,"guided_grammar":"root ::= \"no\"")",
        R"(,"ebnf":"root ::= \"no\"")"})
    EXPECT_EQ(content(asked), "no") << asked;
}

TEST_F(StructureTest, RuledFromTheFirstTokenWithoutThinking) {
  start("xxxxxxxxxxxxxxxxxxxxx");
  EXPECT_EQ(content(R"(,"guided_choice":["yes"],"enable_thinking":false)"), "yes");
  const auto [status, body] =
      ask(post(kCompletions, R"({"prompt":"p","max_tokens":20,"guided_choice":["yes"]})"));
  ASSERT_EQ(status, 200) << body;
  EXPECT_EQ(at(choice(parse_json(body, "a").value()), "text").as_string(), "yes");
}

TEST_F(StructureTest, ForcedCalls) {
  start("x</think>\n\nI would rather talk xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
  const auto called = [&](const std::string& tool_choice) {
    const Json answer =
        chat(concat(R"(,"max_tokens":700,"parallel_tool_calls":false,"tool_choice":)", tool_choice,
                    ",", kTools));
    EXPECT_EQ(at(choice(answer), "finish_reason").as_string(), "tool_calls");
    const Json& call = at(at(choice(answer), "message"), "tool_calls").as_array().at(0);
    return at(call, "function");
  };
  const Json named = called(R"({"type":"function","function":{"name":"w"}})");
  EXPECT_EQ(at(named, "name").as_string(), "w");
  EXPECT_EQ(at(parse_json(at(named, "arguments").as_string(), "a").value(), "at").as_string(),
            "Rome");
  const std::string any = at(called(R"("required")"), "name").as_string();
  EXPECT_TRUE(any == "w" || any == "now") << any;
}

TEST_F(StructureTest, Refusals) {
  start("x");
  const auto param = [&](const std::string& fields) {
    const Json error = refused(fields);
    EXPECT_LT(at(error, "message").as_string().size(), 500U);
    return at(error, "param").as_string();
  };
  EXPECT_EQ(param(R"(,"response_format":{"type":"yaml"})"), "response_format");
  EXPECT_EQ(param(R"(,"response_format":{"type":"json_schema"})"), "response_format");
  EXPECT_EQ(param(R"(,"response_format":7)"), "response_format");
  EXPECT_EQ(param(R"(,"response_format":{"type":"text","json_schema":{"strict":[]}})"),
            "response_format");
  EXPECT_EQ(param(R"(,"structured_outputs":3)"), "structured_outputs");
  EXPECT_EQ(param(R"(,"guided_choice":["a"],"allowed_token_ids":[5])"), "allowed_token_ids");
  EXPECT_EQ(param(R"(,"guided_choice":["a"],"bad_words":["a"])"), "bad_words");
  EXPECT_EQ(param(R"(,"guided_choice":[])"), "guided_choice");
  EXPECT_EQ(param(R"(,"guided_choice":"no")"), "guided_choice");
  EXPECT_EQ(param(R"(,"guided_regex":7)"), "guided_regex");
  EXPECT_EQ(param(R"(,"guided_regex":"a","guided_choice":["b"])"), "guided_choice");
  EXPECT_EQ(param(R"(,"tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(param(concat(R"(,"tool_choice":{"type":"function","function":{"name":"z"}},)", kTools)),
            "tool_choice");
  EXPECT_EQ(param(concat(R"(,"tool_choice":"required","guided_regex":"a",)", kTools)),
            "guided_regex");
  const std::string part =
      R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"{"}],)"
      R"("continue_final_message":true,"add_generation_prompt":false,"guided_regex":"a"})";
  const std::string why = ask(post(kChat, part)).second;
  EXPECT_NE(why.find("guided_regex beside a last message that is continued: expected one of the "
                     "two; end the messages with"),
            std::string::npos)
      << why;
  const Json error = refused(R"(,"guided_json":{"properties":{"a":{"$dynamicRef":"#a"}}})");
  EXPECT_EQ(at(error, "code").as_string(), "unsupported_schema");
  EXPECT_NE(at(error, "message").as_string().find("#/properties/a/$dynamicRef"), std::string::npos);
}

TEST_F(StructureTest, NothingThatMayBeSaidIsARefusal) {
  start("x");
  for (const char* fields :
       {R"(,"guided_grammar":"root ::= root")", R"(,"guided_grammar":"root ::= \"a\" root")",
        R"(,"guided_json":{"$ref":"#"})",
        R"(,"guided_json":{"type":"string","pattern":"^[^\\s\\S]$"})",
        R"(,"guided_json":{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"})
    EXPECT_EQ(at(refused(fields), "code").as_string(), "unsupported_schema") << fields;
  const Json error = refused(R"(,"guided_choice":["yes"],"min_tokens":4,"enable_thinking":false)");
  EXPECT_EQ(at(error, "param").as_string(), "min_tokens");
  EXPECT_NE(at(error, "message").as_string().find("at most 3"), std::string::npos);
}

TEST_F(StructureTest, ACompleteStructureEndsTheAnswerBeforeItsLeastTokens) {
  start("xxxxxxxxxxxxxxxxxxxxx");
  EXPECT_EQ(content(R"(,"guided_regex":"n[o]","min_tokens":9,"enable_thinking":false)"), "no");
}

/// Proposes a known text, with every third token changed for one that may not stand there.
class TextDrafter final : public Drafter {
 public:
  explicit TextDrafter(std::vector<int32_t> text) : text_(std::move(text)) {}
  void propose(const Sequence& s, int32_t count_max, std::vector<int32_t>& drafts) override {
    for (size_t i = s.generated.size(); i < text_.size() && std::cmp_less(drafts.size(), count_max);
         ++i)
      drafts.push_back(i % 3 == 2 ? (text_[i] + 1) % FakeBackend::kVocab : text_[i]);
  }

 private:
  std::vector<int32_t> text_;
};

constexpr int32_t kEndOfText = FakeBackend::kVocab - 1;

GrammarCompiler::Vocabulary small_vocabulary() {
  std::vector<std::string> tokens;
  for (const char c : std::string("{}[]\":, -;0123456789abcdefghijklmnopqrstuvwxyz"))
    tokens.emplace_back(1, c);
  for (const char* longer : {"{\"", "\":", "\",", "true", "null", "ab", "cd-1"})
    tokens.emplace_back(longer);
  const auto encode = [tokens](std::string_view text) {  // the longest token first
    std::vector<int32_t> ids;
    while (!text.empty()) {
      size_t best = 0;
      for (size_t id = 0; id < tokens.size(); ++id)
        if (text.starts_with(tokens[id]) &&
            (!text.starts_with(tokens[best]) || tokens[id].size() > tokens[best].size()))
          best = id;
      ids.push_back(static_cast<int32_t>(best));
      text.remove_prefix(std::min(tokens[best].size(), text.size()));
    }
    return ids;
  };
  tokens.resize(FakeBackend::kVocab);
  return {tokens, {kEndOfText}, {}, encode};
}

/// The tokens that the fake model says under a structure, and what became of drafts.
std::pair<std::vector<int32_t>, EngineCounters> said_under(
    const std::shared_ptr<const Grammar>& grammar, std::shared_ptr<Drafter> drafter) {
  const EngineSettings settings{
      .pools = {.pages = 8, .state_slots = 2, .rows_max = 72, .replay_rows = 5},
      .sequences_max = 1,
      .context_max = 512,
      .drafter = std::move(drafter),
      .integrity = IntegrityChecks::every_step,
      .clock_ms = [] { return 1.0; }};  // costs stay those assumed: drafts pay
  FakeBackend backend;
  EXPECT_TRUE(backend.reserve(settings.pools).ok());
  EngineCore core(backend, FakeBackend::config(),
                  Sampler(FakeBackend::kVocab, Sampler::all_sampleable(FakeBackend::kVocab)),
                  settings);
  SequenceRequest request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 300;
  request.stop_ids = {kEndOfText};
  request.sampling.seed = 7;
  request.constraint = make_grammar_constraint(grammar, -1);
  core.submit(std::move(request));
  std::vector<int32_t> said;
  while (!core.idle())
    for (const EngineEvent& event : core.step())
      if (const auto* fresh = std::get_if<NewTokens>(&event))
        said.insert(said.end(), fresh->tokens.begin(), fresh->tokens.end());
  return {said, core.counters()};
}

/// No mask counts as long, however busy the machine is: under a grammar that has had a long one
/// nothing is drafted any more.
constexpr GrammarLimits kNoLongMasks = {.mask_time_max = std::chrono::hours(1)};

/// Knows nothing, and so leaves drafts to the structure.
class NoDrafter final : public Drafter {
 public:
  void propose(const Sequence&, int32_t, std::vector<int32_t>&) override {}
};

/// Drafts that a structure refuses, among some that are right, change nothing of the answer.
TEST(Structure, IsTheSameWithADrafter) {
  GrammarCompiler compiler(small_vocabulary, kNoLongMasks);
  const GrammarSource sources[] = {
      {.kind = GrammarSource::Kind::regex, .text = "([a-f]{3}-[0-9]{2};){40}"},
      {.kind = GrammarSource::Kind::json_schema,
       .text = R"({"type":"array","minItems":20,"maxItems":20,"items":{"type":"object",)"
               R"("properties":{"a":{"enum":["b","cd"]},"n":{"type":"integer"}},)"
               R"("required":["a","n"],"additionalProperties":false}})"}};
  for (const GrammarSource& source : sources) {
    const auto grammar = compiler.compile(source).value();
    const auto [text, plain] = said_under(grammar, nullptr);
    EXPECT_GT(text.size(), 150U);
    EXPECT_EQ(plain.drafted, 0);
    const auto [drafted, counters] = said_under(grammar, std::make_shared<TextDrafter>(text));
    EXPECT_EQ(drafted, text) << source.text;
    EXPECT_GT(counters.drafts_right, 50);
    EXPECT_GT(counters.drafts_refused, 20);  // they are not computed
  }
}

/// The fake model says a token of those that may come as soon as another, so texts are divided in
/// unusual ways; tokens that are the only ones allowed are always right.
TEST(Structure, DraftsWhatItForces) {
  GrammarCompiler compiler(small_vocabulary, kNoLongMasks);
  const auto grammar = [&](const char* regex) {
    return compiler.compile({.kind = GrammarSource::Kind::regex, .text = regex}).value();
  };
  constexpr auto kGrammar = static_cast<size_t>(Proposer::grammar);
  const auto certain = grammar("([0-9]xyz;){40}");
  const auto [text, plain] = said_under(certain, nullptr);
  const auto [drafted, counters] = said_under(certain, std::make_shared<NoDrafter>());
  EXPECT_EQ(drafted, text);
  EXPECT_EQ(text.size(), 200U);
  EXPECT_EQ(counters.drafted_by[kGrammar], counters.right_by[kGrammar]);
  EXPECT_GT(counters.right_by[kGrammar], 140);  // none is the last of a page
  EXPECT_LT(counters.passes, plain.passes / 2);
  const auto likely = grammar("([0-9]true;){40}");
  const auto [said, none] = said_under(likely, nullptr);
  const auto [again, some] = said_under(likely, std::make_shared<NoDrafter>());
  EXPECT_EQ(again, said);
  EXPECT_GT(some.right_by[kGrammar], 80);
  EXPECT_LT(some.right_by[kGrammar], some.drafted_by[kGrammar]);
}

}  // namespace
}  // namespace nibble
