// The papers of an output against those of its source: each kind of difference, and what counts as
// none.
#include "quantize/verify/compare_papers.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "quantize/testing/test_runs.h"

namespace nibble {
namespace {

using test::Folder;

std::string listing(const PaperComparison& papers) {
  std::string out;
  for (const Finding& finding : papers.differences)
    out += concat(finding.severity == Severity::error ? "error " : "warning ", finding.subject,
                  ": ", finding.text, "\n");
  return out;
}

struct Row {
  const char* file;
  const char* before;  // of the source; nullptr: it is not there
  const char* now;
  const char* expected;
};

constexpr Row kRows[] = {
    {"a.json", R"({"a":[1,2,3]})", R"({"a":[1,4,5]})",
     "error a.json: a[1]: expected 2 as in the source, found 4\n"},
    {"a.json", R"({"a":[1,2]})", R"({"a":[1]})",
     "error a.json: a: expected [1,2] as in the source, found [1]\n"},
    {"a.json", R"({"a":{"b":1}})", R"({"a":{"b":2}})",
     "error a.json: a.b: expected 1 as in the source, found 2\n"},
    {"a.json", R"({"a":{"b":1,"c":null}})", R"({"a":{}})",
     "warning a.json: a.b: is missing; the source has 1\n"},
    {"a.json", R"({"a":{}})", R"({"a":{"b":1,"c":null}})", "warning a.json: a.b: 1 was added\n"},
    {"a.json", R"({"a":1,"m":["x y"],"dtype":1})", R"({"m":[["x","y"]],"a":1.0,"dtype":2})", ""},
    {"a.json", R"({"m":["x y"]})", R"({"m":[["x","z"]]})",
     "error a.json: m[0]: expected \"x y\" as in the source, found [\"x\",\"z\"]\n"},
    {"a.json", R"({"m":["x y"]})", R"({"m":[["x","y","z"]]})",
     "error a.json: m[0]: expected \"x y\" as in the source, found [\"x\",\"y\",\"z\"]\n"},
    {"a.json", R"({"x_type":"AFast","y":{"z_type":"b"},"n":"AFast"})",
     R"({"x_type":"A","y":{"z_type":"b_vision"},"n":"A"})",
     "error a.json: n: expected \"AFast\" as in the source, found \"A\"\n"},
    {"a.json", R"({"a_type":"b"})", R"({"a_type":"bc"})",
     "error a.json: a_type: expected \"b\" as in the source, found \"bc\"\n"},
    {"a.json", R"({"end_of_word_suffix":null,"continuing_subword_prefix":"","a":null})",
     R"({"end_of_word_suffix":"","continuing_subword_prefix":null,"a":""})",
     "error a.json: a: expected null as in the source, found \"\"\n"},
    {"a.json", R"({"end_of_word_suffix":null})", R"({"end_of_word_suffix":"x"})",
     "error a.json: end_of_word_suffix: expected null as in the source, found \"x\"\n"},
    {"a.json", "[1", "[2", "error \"a.json\": expected the source's 2 bytes, found 2 others\n"},
    {"a.txt", "one", "another", "error \"a.txt\": expected the source's 3 bytes, found 7 others\n"},
    {"a.txt", "one", nullptr, "error \"a.txt\": is missing; the source has it\n"},
    {"LICENSE", "one", nullptr, "warning \"LICENSE\": is missing; the source has it\n"},
    {"a.jinja", nullptr, "x", "warning \"a.jinja\": was added; the source has no such file\n"},
    {"LICENSE", nullptr, "x", ""},
    {"a.model", nullptr, "x", "warning \"a.model\": was added; the source has no such file\n"},
    {"a.tiktoken", "x", nullptr, "error \"a.tiktoken\": is missing; the source has it\n"},
    {"a.jsonl", "x", nullptr, "error \"a.jsonl\": is missing; the source has it\n"},
    {"a.json", R"({"a":1,"transformers_version":1,"torch_dtype":1,"_name_or_path":1,"dtype":1})",
     R"({"a":1.0,"quantization_config":2,"use_cache":2,"_name_or_path":2})", ""},
    {"a.json", R"({"a":1})", R"({"a":"1"})",
     "error a.json: a: expected 1 as in the source, found \"1\"\n"},
    {"a.json", R"({"m":"x y"})", R"({"m":["x y"]})",
     "error a.json: m: expected \"x y\" as in the source, found [\"x y\"]\n"},
    {"a.json", R"({"a":"0123456789012345678901234567890123456789012345678901234567890"})",
     R"({"a":1})",
     "error a.json: a: expected \"01234567890123456789012345678901234567890123456789012345678 as "
     "in "
     "the source, found 1\n"},
    {"a.md", "one", "another", ""},
    {"quantize_a.json", "1", "2", ""},
    {"recipe.yaml", "1", nullptr, ""},
};

void put(const std::filesystem::path& file, const char* text) {
  if (text != nullptr)
    write_file_atomically(file, text).value();
  else
    std::filesystem::remove(file);
}

TEST(ComparePapers, SaysEachDifferenceOnceAndWhere) {
  const Folder folder;
  test::write_model(folder / "in", test::Layout::dense);
  std::filesystem::copy(folder / "in", folder / "out");
  for (const Row& row : kRows) {
    put(folder / "in" / row.file, row.before);
    put(folder / "out" / row.file, row.now);
    const Checkpoint out = Checkpoint::open(folder / "out").value();
    const PaperComparison found =
        compare_papers(out, Checkpoint::open(folder / "in").value()).value();
    EXPECT_EQ(listing(found), row.expected) << row.before;
    const bool both = row.before != nullptr && row.now != nullptr;
    const bool judged = both && !std::string_view(row.file).ends_with(".md") &&
                        !std::string_view(row.file).starts_with("quantize_");
    EXPECT_EQ(found.files, 1 + (judged && found.differences.empty() ? 1 : 0)) << row.file;
    put(folder / "in" / row.file, nullptr);
    put(folder / "out" / row.file, nullptr);
  }
}

TEST(ComparePapers, FindsAProcessorWhereItMoved) {
  const Folder folder;
  test::write_model(folder / "in", test::Layout::dense);
  std::filesystem::copy(folder / "in", folder / "out");
  put(folder / "in" / "preprocessor_config.json", R"({"patch_size":16})");
  const auto found = [&](const char* now) {
    put(folder / "out" / "processor_config.json", now);
    const Checkpoint out = Checkpoint::open(folder / "out").value();
    return compare_papers(out, Checkpoint::open(folder / "in").value()).value();
  };
  const std::string missing = "error \"preprocessor_config.json\": is missing; the source has it\n";
  const std::string added =
      "warning \"processor_config.json\": was added; the source has no such file\n";
  EXPECT_EQ(listing(found(R"({"image_processor":{"patch_size":16}})")), added);
  EXPECT_EQ(found(R"({"image_processor":{"patch_size":16}})").files, 2);
  EXPECT_EQ(listing(found(R"({"image_processor":{"patch_size":14}})")),
            "error processor_config.json: image_processor.patch_size: expected 16 as in the "
            "source, found 14\n" +
                added);
  EXPECT_EQ(listing(found(R"({"video_processor":{"patch_size":16}})")), missing + added);
  EXPECT_EQ(listing(found("{")), missing + added);
  EXPECT_EQ(listing(found(nullptr)), missing);
}

TEST(ComparePapers, FindsAVideoProcessorWhereItMoved) {
  const Folder folder;
  test::write_model(folder / "in", test::Layout::dense);
  std::filesystem::copy(folder / "in", folder / "out");
  put(folder / "in" / "video_preprocessor_config.json", R"({"patch_size":16})");
  put(folder / "out" / "processor_config.json", R"({"video_processor":{"patch_size":14}})");
  const Checkpoint out = Checkpoint::open(folder / "out").value();
  const PaperComparison found =
      compare_papers(out, Checkpoint::open(folder / "in").value()).value();
  EXPECT_EQ(listing(found),
            "error processor_config.json: video_processor.patch_size: expected 16 as in the "
            "source, found 14\n"
            "warning \"processor_config.json\": was added; the source has no such file\n");
  EXPECT_EQ(found.files, 1);
}

TEST(ComparePapers, ConfigsMayDifferInWhatChangesNoResult) {
  const Folder folder;
  test::write_model(folder / "in", test::Layout::dense);
  std::filesystem::copy(folder / "in", folder / "out");
  Json config = parse_json(test::file_text(folder / "in" / "config.json"), "config").value();
  const auto compared = [&] {
    write_file_atomically(folder / "out" / "config.json", config.dump()).value();
    const Checkpoint out = Checkpoint::open(folder / "out").value();
    return compare_papers(out, Checkpoint::open(folder / "in").value()).value();
  };
  const int64_t keys = compared().keys;
  EXPECT_GT(keys, 10);
  config.set("torch_dtype", "float32");
  config.set("quantization_config", Json::Object());
  EXPECT_EQ(listing(compared()), "");
  EXPECT_EQ(compared().keys, keys);
  config.set("architectures", Json(Json::Array{Json("Other")}));
  EXPECT_EQ(listing(compared()).find("error config.json: architectures[0]: expected "), 0U);
  EXPECT_EQ(compared().keys, keys - 1);
  config = parse_json(test::file_text(folder / "in" / "config.json"), "config").value();
  config.find("text_config")->set("hidden_act", Json());
  config.set("new_key", 3);
  EXPECT_EQ(listing(compared()),
            "error config.json: text_config.hidden_act: expected \"silu\" as in the source, found "
            "null\nwarning config.json: new_key: 3 was added\n");
  Json less{Json::Object{}};
  for (const auto& [key, value] : compared().keys > 0 ? config.as_object() : Json::Object{})
    if (key != "tie_word_embeddings" && key != "new_key") less.set(key, value);
  config = less;
  EXPECT_NE(listing(compared())
                .find("error config.json: tie_word_embeddings: is missing; the "
                      "source has false\n"),
            std::string::npos);
}

}  // namespace
}  // namespace nibble
