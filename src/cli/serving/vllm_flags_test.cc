// vLLM's flags: all that its versions have are known, each with one answer; its sizes and dotted
// values are read as it reads them (tests/golden/vllm, made by its own code); the table of
// docs/serving.md is that of the rows.
#include "cli/serving/vllm_flags.h"

#include <gtest/gtest.h>

#include <set>

#include "base/file.h"
#include "base/json.h"
#include "cli/options/flag_report.h"
#include "cli/serving/server_options.h"
#include "testing/source_dir.h"

namespace nibble {
namespace {

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

Result<Arguments> parse(const Verb& verb, const std::vector<std::string>& words) {
  return parse_arguments(verb, words, no_environment);
}

Result<Arguments> serve(std::vector<std::string> words) {
  words.insert(words.begin(), "DIR");
  return parse(kServeVerb, words);
}

std::string text_of(const std::string& path) {
  return read_text_file(concat(NIBBLE_SOURCE_DIR, "/", path), uint64_t{1} << 24).value();
}

Json golden() { return parse_json(text_of("tests/golden/vllm/serve.json"), "golden").value(); }

std::set<std::string_view> option_names() {
  std::set<std::string_view> names = {kCommonOptions[0].name};
  for (const Option& option : kServeVerb.options) names.insert({option.name, option.alias});
  return names;
}

TEST(VllmFlags, EachOfItsFlagsHasOneAnswer) {
  std::multiset<std::string_view> answered;
  for (const VllmOption& row : kVllmOptions)
    for_each_word(row.names, [&](std::string_view name) { answered.insert(name); });
  for (const ForeignFlag& flag : kVllmFlags) answered.insert(flag.option.name);
  const Json all = golden();
  for (const Json& flag : all.find("flags")->as_array())
    EXPECT_EQ(answered.count(flag.as_string()), 1U) << flag.as_string();
}

TEST(VllmFlags, WhatIsHonouredIsAnOptionAndTheRestIsNot) {
  const auto options = option_names();
  for (const VllmOption& row : kVllmOptions)
    for_each_word(row.names,
                  [&](std::string_view name) { EXPECT_TRUE(options.contains(name)) << name; });
  std::set<std::string_view> once(options);
  for (const ForeignFlag& flag : kVllmFlags) {
    EXPECT_TRUE(once.insert(flag.option.name).second) << flag.option.name;
    const bool fresh = flag.option.alias.empty() || once.insert(flag.option.alias).second;
    EXPECT_TRUE(fresh) << flag.option.alias;
  }
}

/// A value that the row takes, and whether there is one.
std::string good_value(const ForeignFlag& flag) {
  if (flag.taken == "MEDIA") return R"({"image":2,"video":{"count":0,"num_frames":3}})";
  if (flag.taken == "N") return "20K";
  if (flag.taken != "*") return std::string(flag.taken.substr(0, flag.taken.find(',')));
  return flag.option.value.empty() ? "true" : flag.option.value == "JSON" ? "{}" : "x";
}

TEST(VllmFlags, EachIsAcceptedWithALineOrRefusedWithTheReason) {
  for (const ForeignFlag& flag : kVllmFlags) {
    const std::string name(flag.option.name);
    EXPECT_FALSE(flag.taken.empty() ? flag.refused.empty() : flag.accepted.empty()) << name;
    if (!flag.taken.empty()) {
      const auto arguments = serve({concat("--", name, "=", good_value(flag))});
      ASSERT_TRUE(arguments.ok()) << arguments.error().message;
      const auto notices = vllm_flag_notices(arguments.value());
      ASSERT_EQ(notices.size(), 1U) << name;
      EXPECT_TRUE(notices[0].starts_with(concat("--", name, " "))) << notices[0];
      EXPECT_TRUE(notices[0].ends_with(flag.accepted)) << notices[0];
      EXPECT_NE(flag_report(kServeVerb, arguments.value()).find(flag.accepted), std::string::npos);
    }
    if (flag.taken == "*" && !flag.option.value.starts_with("JSON")) continue;
    if (flag.taken == kAnyBool && flag.option.value.empty()) continue;
    const bool is_switch = flag.option.value.empty();
    const std::string wrong = !is_switch ? "-7.x" : flag.taken == "true" ? "false" : "true";
    const auto refused = serve({concat("--", name, "=", wrong)});
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    const std::string& why = refused.error().message;
    EXPECT_TRUE(why.starts_with(concat("--", name))) << why;
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
    EXPECT_TRUE(flag.refused.empty() || why.ends_with(flag.refused)) << why;
  }
}

TEST(VllmFlags, SizesAreReadAsVllmReadsThem) {
  const Json all = golden();
  for (const Json::Member& size : all.find("sizes")->as_object()) {
    const std::optional<int64_t> read = read_size(size.key);
    EXPECT_EQ(read ? Json(*read) : Json(), size.value) << "\"" << size.key << "\"";
  }
}

TEST(VllmFlags, DottedValuesAreReadAsVllmReadsThem) {
  static constexpr Option kJson[] = {{"json", "JSON", "", "an object"}};
  const Verb verb = {
      .name = "probe", .positionals = "", .summary = "", .options = kJson, .run = {}};
  const Json all = golden();
  for (const Json& row : all.find("dotted")->as_array()) {
    std::vector<std::string> words;
    for (const Json& word : row.as_array()[0].as_array()) words.push_back(word.as_string());
    const auto arguments = parse(verb, words);
    ASSERT_TRUE(arguments.ok()) << arguments.error().message;
    EXPECT_EQ(parse_json(*arguments.value().text("json"), "json").value(), row.as_array()[1])
        << words[0];
  }
}

struct Values {
  std::vector<std::string> words;
  const char* refused;  // a piece of the line; null: taken
};

TEST(VllmFlags, ValuesThatAreTakenAndThoseThatAreNot) {
  const Values cases[] = {
      {{"--limit-mm-per-prompt", "image=2,video=0"}, nullptr},
      {{"--limit-mm-per-prompt", R"({"image": 2})"}, nullptr},
      {{"--limit-mm-per-prompt.video", "0"}, nullptr},
      {{"--limit-mm-per-prompt.video.count=0"}, nullptr},
      {{"--limit-mm-per-prompt", "2"}, "expected limits such as"},
      {{"--limit-mm-per-prompt", "smell=2"}, "expected limits such as"},
      {{"--limit-mm-per-prompt", "image=-1"}, "expected limits such as"},
      {{"--limit-mm-per-prompt", "image=", "--port", "1"}, "expected limits such as"},
      {{"--limit-mm-per-prompt", "{\"image\":1"}, "expected limits such as"},
      {{"--limit-mm-per-prompt.video", "many"}, "expected limits such as"},
      {{"-tp", "1", "-pp", "1", "-q", "modelopt"}, nullptr},
      {{"-tp", "2"}, "--tensor-parallel-size: expected 1, found \"2\""},
      {{"--attention-backend", "FLASH_ATTN"}, nullptr},
      {{"--attention-backend", "FLASHMLA"}, "--attention-backend: expected one of auto"},
      {{"--moe-backend", "Marlin"}, nullptr},
      {{"--moe-backend", ""}, "--moe-backend: expected one of auto"},
      {{"--cudagraph-capture-sizes", "1", "2", "4"}, nullptr},
      {{"--cudagraph-capture-sizes", "1", "two"}, "expected whole numbers"},
      {{"--max-cudagraph-capture-size", "-1"}, "expected a whole number"},
      {{"--enable-chunked-prefill", "false"}, "always computed in chunks of at most"},
      {{"--no-enable-chunked-prefill"}, "always computed in chunks of at most"},
      {{"--no-async-scheduling"}, nullptr},
      {{"--dtype", "half"}, "--dtype: expected one of auto, bfloat16, found \"half\""},
      {{"--tool-call-parser", "hermes"}, "--tool-call-parser: expected one of qwen3"},
      {{"--reasoning-parser", "glm45"}, "--reasoning-parser: expected one of qwen3"},
      {{"--quantization", "awq"}, "--quantization: expected one of modelopt"},
      {{"--load-format", "fastsafetensors"}, nullptr},
      {{"--load-format", "gguf"}, "--load-format: expected one of auto"},
      {{"--kv-cache-dtype", "turboquant_4bit_nc"}, nullptr},
      {{"--kv-cache-dtype", "nvfp4"}, nullptr},
      {{"--kv-cache-dtype", "bfloat16"}, nullptr},
      {{"--kv-cache-dtype", "int8"}, "--kv-cache-dtype: expected one of auto"},
      {{"--kv-cache-dtype", "turboquant_3bit_nc"}, "fp8 (fp8_e4m3), turboquant_4bit_nc, nvfp4"},
      {{"--kv-cache-dtype", "nvfp4_4over6"}, "found \"nvfp4_4over6\"; each runs on cuda"},
      {{"--kv-cache-dtype", "fp8_e5m2"}, "turboquant_4bit_nc takes head sizes that are powers"},
      {{"--max-model-len", "-1"}, nullptr},
      {{"--max-model-len", "-2"}, "--max-model-len: expected"},
      {{"--max-model-len", "25.6K"}, "25.6k is decimal"},
      {{"--kv-cache-memory-bytes", "20600M"}, nullptr},
      {{"--kv-cache-memory-bytes", "20.6G"}, "20.6g is decimal"},
      {{"--enable-prefix-caching", "false"}, nullptr},
      {{"--enable-prefix-caching=maybe"}, "--enable-prefix-caching: expected 1, on"},
      {{"--served-model-name", "a", "b", "--port", "1"}, nullptr},
      {{"--revision"}, "--revision: expected a value REV"},
      {{"--compilation-config.mode", "3"}, nullptr},
      {{"-cc", "3"}, nullptr},
      {{"--compilation-config", "{"}, "--compilation-config: expected JSON"},
  };
  for (const Values& c : cases) {
    const auto arguments = serve(c.words);
    EXPECT_EQ(arguments.ok(), c.refused == nullptr) << c.words[0];
    if (arguments.ok() || c.refused == nullptr) continue;
    const std::string& why = arguments.error().message;
    EXPECT_NE(why.find(c.refused), std::string::npos) << why;
    EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  }
}

TEST(VllmFlags, SimilarNamesAreNotSuggestedForOthers) {
  const auto both = serve({"--quantizations", "x", "--moe-backends", "x", "--backends", "x"});
  EXPECT_EQ(both.error().message,
            "unknown option --quantizations; did you mean --quantization?\n"
            "unknown option --moe-backends; did you mean --moe-backend?\n"
            "unknown option --backends; did you mean --backend?");
}

TEST(VllmFlags, DocumentsHaveTheTable) {
  EXPECT_NE(text_of("docs/serving.md").find(vllm_flag_table()), std::string::npos)
      << "docs/serving.md has to hold what `nibble serve --help=vllm` prints:\n"
      << vllm_flag_table();
}

TEST(VllmVariables, TheKeyIsReadAndTheOthersAreNamedInOneLine) {
  EXPECT_EQ(vllm_variables_notice(), "");
  ::setenv("VLLM_API_KEY", "sesame", 1);
  EXPECT_EQ(vllm_variables_notice(), "");
  ::setenv("VLLM_ONE", "1", 1);
  ::setenv("VLLM_TWO", "", 1);
  const std::string notice = vllm_variables_notice();
  const auto key = [](std::vector<std::string> words) {
    return read_server_flags(serve(std::move(words)).value()).value().api_keys;
  };
  EXPECT_EQ(key({}), std::vector<std::string>{"sesame"});
  EXPECT_EQ(key({"--api-key", "a", "b"}), (std::vector<std::string>{"a", "b"}));
  for (const char* name : {"VLLM_API_KEY", "VLLM_ONE", "VLLM_TWO"}) ::unsetenv(name);
  EXPECT_NE(notice.find("VLLM_ONE"), std::string::npos) << notice;
  EXPECT_NE(notice.find("VLLM_TWO"), std::string::npos) << notice;
  EXPECT_EQ(notice.find("VLLM_API_KEY"), std::string::npos) << notice;
  EXPECT_EQ(notice.find('\n'), std::string::npos) << notice;
}

TEST(FlagReport, SaysWhatEachDidAndHidesKeys) {
  const auto arguments =
      serve({"--api-key", "sesame", "--port", "1", "--no-web", "--served-model-name", "a", "b"});
  const std::string report = flag_report(kServeVerb, arguments.value());
  EXPECT_NE(report.find("--api-key (hidden): honoured"), std::string::npos) << report;
  EXPECT_EQ(report.find("sesame"), std::string::npos) << report;
  EXPECT_NE(report.find("--port 1: honoured"), std::string::npos) << report;
  EXPECT_NE(report.find("--no-web: honoured, switched off"), std::string::npos) << report;
  EXPECT_NE(report.find("--served-model-name a b: honoured"), std::string::npos) << report;
  EXPECT_EQ(report.find("--host"), std::string::npos) << report;
}

}  // namespace
}  // namespace nibble
