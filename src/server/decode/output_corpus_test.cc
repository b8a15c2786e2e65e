// Answers that other servers are known to parse wrongly, as sequences of generated ids: split at
// every token and into groups that arrive at once, a stream says what a whole answer says, and the
// arguments streamed so far are always the beginning of a JSON object. Hostile text costs linear
// time.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <random>

#include "server/answer/response_json.h"
#include "server/decode/choice_decoder.h"
#include "server/testing/test_model.h"

namespace nibble {
namespace {

const ServedModel& model() {
  static const ServedModel made = testing::served_model();
  return made;
}

ToolSchemas schemas() {
  return ToolSchemas(parse_json(R"([
    {"type":"function","function":{"name":"write","parameters":{"type":"object","properties":{
      "path":{"type":"string"}, "code":{"type":"string"}, "mode":{"type":"integer"},
      "tags":{"type":"array"}, "force":{"type":"boolean"}}}}},
    {"type":"function","function":{"name":"now"}}])",
                                "tools")
                         .value());
}

/// Tags become ids; `\x01` inside one keeps it text: "<\x01/think>" is what spells a tag.
std::vector<int32_t> ids_of(const std::string& text) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size();) {
    const auto rest = text.substr(at);
    const std::pair<const char*, int32_t> tags[] = {{"<think>", testing::kThink},
                                                    {"</think>", testing::kEndThink},
                                                    {"<tool_call>", testing::kToolCall},
                                                    {"</tool_call>", testing::kEndToolCall}};
    const auto tag =
        std::ranges::find_if(tags, [&](const auto& t) { return rest.starts_with(t.first); });
    if (tag != std::end(tags)) {
      ids.push_back(tag->second);
      at += std::string_view(tag->first).size();
    } else {
      if (text[at] != '\x01') ids.push_back(static_cast<unsigned char>(text[at]));
      ++at;
    }
  }
  return ids;
}

/// True if some JSON text begins with `text`: it is completed by closing what is open.
bool begins_json(const std::string& text) {
  if (text.empty()) return true;
  std::string closers;
  bool in_string = false;
  bool escaped = false;
  for (const char c : text) {
    if (in_string) {
      in_string = escaped || c != '"';
      escaped = !escaped && c == '\\';
      continue;
    }
    in_string = c == '"';
    if (c == '{' || c == '[') closers.insert(0, 1, c == '{' ? '}' : ']');
    if ((c == '}' || c == ']') && !closers.empty()) closers.erase(0, 1);
  }
  for (const char* end : {"", "\"", "0", "\": 0", ": 0", "\"k\": 0"})
    if (parse_json(concat(text, end, closers), "a completed text").ok()) return true;
  return false;
}

struct Seen {
  ChoiceText text;
  int32_t complete = 0;
  int fragments = 0;  // of arguments
};

std::string summary(const Seen& seen) {
  std::string out = concat("R:", seen.text.reasoning, "|C:", seen.text.content);
  for (const ToolCall& call : seen.text.calls) out += concat("|", call.name, " ", call.arguments);
  return concat(out, "|", seen.complete);
}

/// Takes events as a stream does: after each group of tokens. `cuts`: where groups end, ascending.
Seen decode(const std::vector<int32_t>& ids, StartIn start, const std::vector<size_t>& cuts) {
  ChoiceDecoder decoder(model(),
                        {.start = start, .parse_tools = ParseTools::yes, .schemas = schemas()});
  Seen seen;
  const auto collect = [&] {
    for (const OutputEvent& event : decoder.take()) {
      seen.text.add(event);
      if (event.kind != OutputEvent::Kind::tool_arguments) continue;
      ++seen.fragments;
      EXPECT_TRUE(begins_json(seen.text.calls.back().arguments))
          << seen.text.calls.back().arguments;
    }
  };
  auto cut = cuts.begin();
  for (size_t i = 0; i < ids.size(); ++i) {
    decoder.push(ids[i]);
    if (cut == cuts.end() || i + 1 != *cut) continue;
    collect();
    ++cut;
  }
  decoder.finish();
  collect();
  seen.complete = decoder.complete_calls();
  return seen;
}

struct Case {
  const char* what;
  StartIn start;
  std::string text;
  std::string expected;
};

const std::string kCall =
    "<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</"
    "tool_call>";
const std::string kWritten = R"(|write {"path": "a.txt"})";

/// The numbers are those of the complaints in the trackers of other servers that they stand for.
std::vector<Case> thinking_cases() {
  constexpr auto kIn = StartIn::reasoning;
  constexpr auto kOut = StartIn::content;
  return {
      {"thinking off: all is content", kOut, "Hello.", "R:|C:Hello.|0"},
      {"thinking off, yet the model thinks", kOut, "<think>\nhm\n</think>\n\nyes", "R:hm|C:yes|0"},
      {"a tag repeated that the prompt ended with", kIn, "<think>\nhm</think>\n\nyes",
       "R:hm|C:yes|0"},
      {"text that spells the end of thinking", kIn, "a <\x01/think> b</think>\n\nc",
       "R:a </think> b|C:c|0"},
      {"text that spells a call", kOut, "use <\x01tool_call> so", "R:|C:use <tool_call> so|0"},
      {"text that spells the start of thinking", kOut, "say <\x01think> so",
       "R:|C:say <think> so|0"},
      {"a call inside thinking", kIn, "hm " + kCall, "R:hm|C:" + kWritten + "|1"},
      {"a call inside thinking, then its end", kIn, "hm " + kCall + "\n</think>\n\nok",
       "R:hm|C:ok" + kWritten + "|1"},
      {"a call right after thinking", kIn, "hm\n</think>\n\n" + kCall, "R:hm|C:" + kWritten + "|1"},
      {"content, then a call", kIn, "hm</think>\n\nLook:\n\n" + kCall,
       "R:hm|C:Look:" + kWritten + "|1"},
      {"cut inside thinking", kIn, "so much to", "R:so much to|C:|0"},
      {"cut right after thinking", kIn, "hm</think>\n\n", "R:hm|C:|0"},
      {"the end of thinking twice", kIn, "hm\n</think>\n</think>\n\nyes", "R:hm|C:yes|0"},
  };
}

std::vector<Case> call_cases() {
  constexpr auto kOut = StartIn::content;
  return {
      {"parallel calls", kOut,
       kCall + "\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n" + kCall,
       "R:|C:" + kWritten + "|now {}" + kWritten + "|3"},
      {"two functions in one call", kOut,
       "<tool_call>\n<function=now>\n</function>\n<function=write>\n<parameter=path>\nb\n"
       "</parameter>\n</function>\n</tool_call>",
       R"(R:|C:|now {}|write {"path": "b"}|2)"},
      {"code with <, > and line breaks", kOut,
       "<tool_call>\n<function=write>\n<parameter=code>\nif (a < b && c > d) {\n\n  "
       "x<y>(\"q\\n\");\n}\n"
       "</parameter>\n<parameter=mode>\n7\n</parameter>\n</function>\n</tool_call>",
       R"(R:|C:|write {"code": "if (a < b && c > d) {\n\n  x<y>(\"q\\n\");\n}", "mode": 7}|1)"},
      {"code that nearly ends itself", kOut,
       "<tool_call>\n<function=write>\n<parameter=code>\n</param\n</parameters>\n<functional>\n"
       "</parameter>\n</function>\n</tool_call>",
       R"(R:|C:|write {"code": "</param\n</parameters>\n<functional>"}|1)"},
      {"a number where a string is declared", kOut,
       "<tool_call>\n<function=write>\n<parameter=path>\n007\n</parameter>\n</function>\n</"
       "tool_call>",
       R"(R:|C:|write {"path": "007"}|1)"},
      {"values by their schema", kOut,
       "<tool_call>\n<function=write>\n<parameter=tags>\n[\"a\", {\"b\": [1]}]\n</parameter>\n"
       "<parameter=force>\ntrue\n</parameter>\n<parameter=mode>\nlots\n</parameter>\n</function>\n"
       "</tool_call>",
       R"(R:|C:|write {"tags": ["a",{"b":[1]}], "force": true, "mode": "lots"}|1)"},
      {"characters of several bytes", kOut,
       "<tool_call>\n<function=write>\n<parameter=path>\né🙂\n</parameter>\n</function>\n</"
       "tool_call>",
       R"(R:|C:|write {"path": "é🙂"}|1)"},
      {"a malformed call, its siblings survive", kOut,
       kCall + "\n<tool_call>\nwrite the file\n</tool_call>\n" + kCall,
       "R:|C:\n<tool_call>\nwrite the file\n</tool_call>" + kWritten + kWritten + "|2"},
      {"JSON where the call's own form is due", kOut,
       "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
       "R:|C:<tool_call>\n{\"name\": \"now\"}\n</tool_call>|0"},
      {"a call cut in a string", kOut, "<tool_call>\n<function=write>\n<parameter=path>\na.t",
       R"(R:|C:|write {"path": "a.t|0)"},
      {"a call cut in a number", kOut, "<tool_call>\n<function=write>\n<parameter=mode>\n12",
       R"(R:|C:|write {"mode": |0)"},
      {"a call without its last tag", kOut,
       "<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n</function>",
       "R:|C:" + kWritten + "|1"},
      {"a call without the end of its function", kOut,
       "<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n</tool_call>",
       "R:|C:" + kWritten + "|1"},
      {"a call without its first tag", kOut,
       "<function=write>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>",
       "R:|C:" + kWritten + "|1"},
      {"a parameter twice", kOut,
       "<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=path>\nb\n"
       "</parameter>\n</function>\n</tool_call>",
       R"(R:|C:|write {"path": "a"}|1)"},
  };
}

std::vector<size_t> all_of(size_t count) {
  std::vector<size_t> cuts(count);
  for (size_t i = 0; i < count; ++i) cuts[i] = i + 1;
  return cuts;
}

TEST(OutputCorpus, SaysTheSameHoweverTokensArrive) {
  std::mt19937 random(7);
  std::vector<Case> corpus = thinking_cases();
  for (Case& c : call_cases()) corpus.push_back(std::move(c));
  for (const Case& c : corpus) {
    const std::vector<int32_t> ids = ids_of(c.text);
    const auto check = [&](const std::vector<size_t>& cuts) {
      const std::string found = summary(decode(ids, c.start, cuts));
      ASSERT_EQ(found, c.expected) << c.what;
    };
    check({});
    check(all_of(ids.size()));
    if (ids.size() <= 12) {  // every grouping there is
      for (uint32_t bits = 0; bits < 1U << (ids.size() - 1); ++bits) {
        std::vector<size_t> cuts;
        for (size_t i = 0; i + 1 < ids.size(); ++i)
          if ((bits >> i & 1U) != 0) cuts.push_back(i + 1);
        check(cuts);
      }
      continue;
    }
    for (size_t at = 1; at < ids.size(); ++at) check({at});
    for (int round = 0; round < 60; ++round) {
      std::vector<size_t> cuts;
      for (size_t at = 1 + random() % 6; at < ids.size(); at += 1 + random() % 6)
        cuts.push_back(at);
      check(cuts);
    }
  }
}

TEST(OutputCorpus, ArgumentsComeAsTheyAreWritten) {
  const std::string code(400, 'c');
  const auto ids = ids_of("<tool_call>\n<function=write>\n<parameter=code>\n" + code +
                          "\n</parameter>\n</function>\n</tool_call>");
  EXPECT_GT(decode(ids, StartIn::content, all_of(ids.size())).fragments, 390);
}

TEST(OutputCorpus, ThePromptDecidesOnlyWhereItEnds) {
  const auto start = [](const std::string& prompt) { return start_of(model(), ids_of(prompt)); };
  EXPECT_EQ(start("say <\x01/think> and <\x01tool_call>\n<think>\n"), StartIn::reasoning);
  EXPECT_EQ(start("<think>\nold</think>\n\nanswer\nnext\n<think>\n"), StartIn::reasoning);
  EXPECT_EQ(start(kCall + "\n<think>\n\n</think>\n\n"), StartIn::content);
  EXPECT_EQ(start("about <\x01think> alone"), StartIn::content);
}

/// CPU seconds for `bytes` of `unit` after `opening`.
double seconds(const std::string& opening, const std::function<std::string(size_t)>& unit,
               size_t bytes) {
  std::vector<int32_t> ids = ids_of(opening);
  for (size_t i = 0; ids.size() < bytes; ++i)
    for (const int32_t id : ids_of(unit(i))) ids.push_back(id);
  double least = 1e9;
  for (int run = 0; run < 2; ++run) {
    ChoiceDecoder decoder(
        model(),
        {.start = StartIn::reasoning, .parse_tools = ParseTools::yes, .schemas = schemas()});
    const std::clock_t begin = std::clock();
    for (const int32_t id : ids) decoder.push(id);
    decoder.finish();
    least = std::min(least, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(OutputCorpus, HostileTextCostsLinearTime) {
  constexpr size_t kTokens = 1 << 17;  // and twice as many: 256 KiB of text
  const std::string open = "hm</think>\n\n<tool_call>\n<function=write>\n";
  struct Hostile {
    std::string opening;
    std::function<std::string(size_t)> unit;
  };
  const auto same = [](const char* text) { return [text](size_t) { return std::string(text); }; };
  const Hostile texts[] = {
      {"", same("<tool_call>")},
      {"hm</think>", same("<tool_call>\n<function=")},
      {"hm</think>", same("<\x01tool_call>\n")},
      {"", same("</think")},
      {"hm</think>", same("\n<function")},
      {"hm</think>", same(" \n\t")},
      {open + "<parameter=code>\n", same("</parameter\n")},
      {open + "<parameter=mode>\n", same("\n</paramete")},
      {open, [](size_t i) { return concat("<parameter=k", i, ">"); }},
      {open, [](size_t i) { return concat("<parameter=k", i, ">\n1\n</parameter>\n"); }},
      {"hm</think>",
       [](size_t i) { return concat("<tool_call>\n<function=f", i, ">\n</function>\n"); }},
  };
  for (const Hostile& text : texts) {
    // Neighbours on the machine cost time too: once in a few tries it must be seen as it is.
    double ratio = 1e9;
    for (int attempt = 0; attempt < 20 && ratio > 2.5; ++attempt) {
      const double once = std::max(seconds(text.opening, text.unit, kTokens), 0.005);
      ratio = std::min(ratio, seconds(text.opening, text.unit, 2 * kTokens) / once);
    }
    EXPECT_LE(ratio, 2.5) << text.opening << text.unit(0);
  }
}

}  // namespace
}  // namespace nibble
