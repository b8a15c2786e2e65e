// A finished output reads back, an unfinished one disappears, and files that exist stay as they
// are.
#include "checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "checkpoint/checkpoint.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/write_journal.h"
#include "testing/test_files.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

const std::vector<TensorPlan> kPlan = {{"scale", DType::f8_e4m3, Shape{2, 1}},
                                       {"packed", DType::u8, Shape{2, 8}},
                                       {"global", DType::f32, Shape{1}},
                                       {"norm", DType::bf16, Shape{5}},
                                       {"scalar", DType::f32, Shape{}}};

std::string pattern(const TensorPlan& tensor) {
  std::string data(static_cast<size_t>(dtype_bytes(tensor.dtype, tensor.shape.count())), '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(tensor.name[0] + i);
  return data;
}

Result<void> append_text(CheckpointWriter& writer, std::string_view name, std::string_view data) {
  return writer.append(name, std::as_bytes(std::span(data)));
}

void append_all(CheckpointWriter& writer) {
  for (const auto& tensor : kPlan) {
    const std::string data = pattern(tensor);
    const size_t half = data.size() / 2;
    ASSERT_TRUE(append_text(writer, tensor.name, std::string_view(data).substr(0, half)).ok());
    ASSERT_TRUE(append_text(writer, tensor.name, std::string_view(data).substr(half)).ok());
  }
}

void expect_all(const Checkpoint& checkpoint) {
  ASSERT_EQ(checkpoint.entries().size(), kPlan.size());
  for (const auto& tensor : kPlan) {
    const TensorEntry* entry = checkpoint.find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(entry->dtype, tensor.dtype);
    EXPECT_EQ(entry->shape, tensor.shape);
    EXPECT_EQ(entry->offset * 8 % static_cast<uint64_t>(dtype_info(entry->dtype).bits), 0U);
    const Tensor read = checkpoint.read(*entry).value();
    const std::string_view bytes(read.as<char>(), static_cast<size_t>(read.bytes()));
    EXPECT_EQ(bytes, pattern(tensor)) << tensor.name;
  }
}

TEST(CheckpointWriter, OneShardReadsBack) {
  const TemporaryFolder root;
  int64_t last_done = 0;
  int64_t last_total = 0;
  CheckpointWriterOptions options;
  options.progress = [&](int64_t done, int64_t total) { last_done = done, last_total = total; };
  auto writer = CheckpointWriter::create(root / "a/b", kPlan, options).value();
  EXPECT_FALSE(Checkpoint::open(root / "a/b").ok()) << "unfinished, must not open";
  append_all(writer);
  ASSERT_TRUE(writer.add_file("report.json", "{}\n").ok());
  ASSERT_TRUE(writer.finish(parse_json(R"({"model_type":"x"})", "test").value()).ok());
  EXPECT_EQ(last_done, 36);
  EXPECT_EQ(last_total, 36);
  EXPECT_EQ(static_cast<uint64_t>(writer.file_bytes()),
            fs::file_size(root / "a/b/model.safetensors"));
  EXPECT_FALSE(fs::exists(root / "a/b/model.safetensors.index.json"));
  expect_all(Checkpoint::open(root / "a/b").value());
  EXPECT_EQ(read_test_file(root / "a/b/config.json"), "{\n  \"model_type\": \"x\"\n}\n");
}

TEST(CheckpointWriter, ShardsReadBackThroughTheirIndex) {
  const TemporaryFolder root;
  auto writer = CheckpointWriter::create(root / "out", kPlan, {.shard_bytes_max = 18}).value();
  append_all(writer);
  ASSERT_TRUE(writer.finish(Json(Json::Object{})).ok());
  const Checkpoint checkpoint = Checkpoint::open(root / "out").value();
  ASSERT_EQ(checkpoint.files().size(), 2U);
  EXPECT_EQ(checkpoint.files()[0], "model-00001-of-00002.safetensors");
  expect_all(checkpoint);
  const Json index =
      parse_json(read_test_file(root / "out/model.safetensors.index.json"), "index").value();
  EXPECT_EQ(index.find("metadata")->find("total_size")->dump(), "36.0");
}

TEST(CheckpointWriter, UnfinishedLeavesNothing) {
  const TemporaryFolder root;
  {
    auto writer = CheckpointWriter::create(root / "new/deep", kPlan).value();
    ASSERT_TRUE(writer.add_file("note.txt", "x").ok());
    ASSERT_TRUE(append_text(writer, "scale", "a").ok());
    const auto finished = writer.finish(Json(Json::Object{}));
    ASSERT_FALSE(finished.ok());
    EXPECT_EQ(finished.error().message,
              "tensor \"scale\" is incomplete: expected 2 bytes, found 1");
  }
  EXPECT_TRUE(fs::is_empty(root.path()));
  fs::create_directory(root / "old");
  { auto writer = CheckpointWriter::create(root / "old", kPlan).value(); }
  EXPECT_TRUE(fs::is_empty(root / "old")) << "a folder that was there stays, empty";
}

TEST(CheckpointWriter, RefusesExistingOutput) {
  const TemporaryFolder root;
  fs::create_directory(root / "full");
  write_test_file(root / "full/keep.txt", "precious");
  const Error full = CheckpointWriter::create(root / "full", kPlan).error();
  EXPECT_EQ(full.code, ErrorCode::invalid_argument);
  EXPECT_NE(full.message.find("expected a new or an empty folder"), std::string::npos);
  const Error file = CheckpointWriter::create(root / "full/keep.txt", kPlan).error();
  EXPECT_NE(file.message.find("found a file"), std::string::npos) << file.message;
  EXPECT_EQ(read_test_file(root / "full/keep.txt"), "precious");
  fs::create_directory(root / "killed");
  write_test_file(root / "killed/model-00001-of-00002.safetensors", "half");
  const Error killed = CheckpointWriter::create(root / "killed", kPlan).error();
  EXPECT_NE(killed.message.find("an unfinished checkpoint"), std::string::npos) << killed.message;
  fs::create_directory(root / "in");
  fs::create_symlink(root / "in", root / "link");
  const Error same =
      CheckpointWriter::create(root / "link", kPlan, {.inputs = {root / "in"}}).error();
  EXPECT_NE(same.message.find("expected an output other than the input"), std::string::npos);
}

TEST(CheckpointWriter, AFolderThatCannotBeMadeIsAnError) {
  const TemporaryFolder root;
  write_test_file(root / "file", "x");
  for (const fs::path& folder : {root / std::string(300, 'n'), root / "file" / "below"}) {
    const auto made = CheckpointWriter::create(folder, kPlan);
    ASSERT_FALSE(made.ok()) << folder;
    EXPECT_EQ(made.error().code, ErrorCode::io) << made.error().message;
    EXPECT_NE(made.error().message.find(folder.string()), std::string::npos)
        << made.error().message;
  }
}

TEST(CheckpointWriter, CopiesWhatIsNoWeight) {
  const TemporaryFolder root;
  fs::create_directories(root / "in/additional_chat_templates");
  fs::create_directories(root / "in/.cache");
  const std::string binary("\0\xFF\r\n", 4);
  write_test_file(root / "in/tokenizer.json", binary);
  write_test_file(root / "in/LICENSE", std::string(3 << 20, 'L'));
  write_test_file(root / "in/additional_chat_templates/tool.jinja", "t");
  for (const char* skipped :
       {"config.json", "model.safetensors", "old.bin", "model.safetensors.index.json",
        "hf_quant_config.json", ".gitattributes", ".cache/x"}) {
    write_test_file(root / "in" / skipped, "no");
  }
  auto writer = CheckpointWriter::create(root / "out", kPlan).value();
  ASSERT_TRUE(writer.copy_other_files(root / "in").ok());
  append_all(writer);
  ASSERT_TRUE(writer.finish(Json(Json::Object{})).ok());
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(root / "out")) {
    if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  const std::vector<std::string> expected = {"LICENSE", "config.json", "model.safetensors",
                                             "tokenizer.json", "tool.jinja"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(read_test_file(root / "out/tokenizer.json"), binary);
  EXPECT_EQ(fs::file_size(root / "out/LICENSE"), 3U << 20);
}

TEST(CompanionFiles, SubfoldersAreKeptAndOtherModelsAreNot) {
  const TemporaryFolder root;
  for (const char* name :
       {"in/a/b/c.txt", "in/a/config.json", "in/other/README.md", "in/other/x.safetensors",
        "in/.git/HEAD", "in/z.txt", "in/config.json", "outside/far.txt"}) {
    fs::create_directories((root / name).parent_path());
    write_test_file(root / name, "x");
  }
  fs::create_directory_symlink(root / "outside", root / "in/link");
  fs::create_symlink(root / "outside/far.txt", root / "in/a/near.txt");
  const std::vector<fs::path> names = {"a/b/c.txt", "a/config.json", "a/near.txt", "z.txt"};
  EXPECT_EQ(companion_files(root / "in").value(), names);
  fs::path deep = root / "deep";
  for (int i = 0; i < 20; ++i) deep /= "d";
  fs::create_directories(deep);
  EXPECT_EQ(companion_files(root / "deep").error().code, ErrorCode::unsupported);
}

TEST(CheckpointWriter, AnOutputBelowItsSourceIsNotCopiedIntoItself) {
  const TemporaryFolder root;
  fs::create_directories(root / "in/sub");
  write_test_file(root / "in/sub/a.txt", "a");
  auto writer = CheckpointWriter::create(root / "in/out", kPlan).value();
  ASSERT_TRUE(writer.add_file("card.md", "card").ok());
  ASSERT_TRUE(writer.copy_other_files(root / "in").ok());
  append_all(writer);
  ASSERT_TRUE(writer.finish(Json(Json::Object{})).ok());
  EXPECT_TRUE(fs::exists(root / "in/out/sub/a.txt"));
  EXPECT_FALSE(fs::exists(root / "in/out/out"));
}

TEST(CompanionFiles, AreInTheOrderOfTheirNames) {
  const TemporaryFolder root;
  fs::create_directories(root / "in");
  std::vector<fs::path> names;
  for (int i = 10; i < 40; ++i) names.emplace_back(concat("file", i));
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    write_test_file(root / "in" / *name, "x");
  EXPECT_EQ(companion_files(root / "in").value(), names);
}

TEST(CheckpointWriter, ListsItsFilesOnceAndSorted) {
  const TemporaryFolder root;
  auto writer = CheckpointWriter::create(root / "out", kPlan).value();
  for (const char* name : {"z.json", "b.json", "a.json", "b.json"})
    writer.add_file(name, "{}").value();
  const std::vector<fs::path> expected = {"a.json", "b.json", "model.safetensors", "z.json"};
  EXPECT_EQ(writer.files(), expected);
}

TEST(CheckpointWriter, AFullDiskIsFoundBeforeTheWork) {
  const TemporaryFolder root;
  const std::vector<TensorPlan> big = {{"big", DType::u8, Shape{1 << 20}}};
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto writer = CheckpointWriter::create(root / "out", big);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, ErrorCode::no_space) << writer.error().message;
  EXPECT_TRUE(fs::is_empty(root.path()));
}

TEST(CheckpointWriter, SomeTensorsHaveFilesOfTheirOwn) {
  const TemporaryFolder root;
  std::vector<TensorPlan> plan = kPlan;
  plan[0].file = "model_head";
  plan[3].file = plan[4].file = "model_mtp";
  auto writer = CheckpointWriter::create(root / "out", plan).value();
  append_all(writer);
  ASSERT_TRUE(writer.finish(Json(Json::Object{})).ok());
  const Checkpoint checkpoint = Checkpoint::open(root / "out").value();
  expect_all(checkpoint);
  const auto file_of = [&](const char* name) {
    return checkpoint.files()[static_cast<size_t>(checkpoint.find(name)->file)];
  };
  EXPECT_EQ(file_of("scale"), "model_head.safetensors");
  EXPECT_EQ(file_of("norm"), "model_mtp.safetensors");
  EXPECT_EQ(file_of("scalar"), "model_mtp.safetensors");
  EXPECT_EQ(file_of("packed"), "model-00001-of-00001.safetensors");
}

Json work_of(const char* source) {
  Json work;
  work.set("program", "test 1");
  work.set("source", source);
  return work;
}

/// Writes "packed" and "norm", then leaves the output unfinished.
void write_half(const fs::path& folder) {
  auto writer =
      CheckpointWriter::create(folder, kPlan, {.work = work_of("a"), .journal_seconds = 0}).value();
  EXPECT_FALSE(writer.resumed());
  for (const char* name : {"packed", "norm"}) {
    const auto& tensor = *std::ranges::find(kPlan, name, &TensorPlan::name);
    ASSERT_TRUE(append_text(writer, name, pattern(tensor)).ok());
  }
  for (const auto& [unit, facts] : {std::pair("unit packed", Json(7)), {"unit norm", "facts"}}) {
    ASSERT_TRUE(writer.note_finished(unit, facts).ok());
    EXPECT_NE(read_test_file(folder / kJournalFile).find(unit), std::string::npos);
  }
  ASSERT_TRUE(writer.add_file("report.json", "old").ok());
  ASSERT_TRUE(writer.suspend().value());
}

TEST(CheckpointWriter, UnfinishedWorkIsGoneOnWith) {
  const TemporaryFolder root;
  write_half(root / "out");
  EXPECT_FALSE(Checkpoint::open(root / "out").ok());
  write_test_file(root / "out/config.json.tmp.4711", "half a file");
  fs::create_directory(root / "in");
  write_test_file(root / "in/tokenizer.json", "new");
  write_test_file(root / "out/tokenizer.json", "ne");
  auto writer = CheckpointWriter::create(root / "out", kPlan, {.work = work_of("a")}).value();
  EXPECT_TRUE(writer.resumed());
  EXPECT_EQ(writer.find_finished("unit packed")->as_int(), 7);
  EXPECT_EQ(writer.find_finished("unit norm")->as_string(), "facts");
  EXPECT_EQ(writer.find_finished("unit scale"), nullptr);
  writer.keep("packed");
  writer.keep("norm");
  for (const auto& tensor : kPlan) {
    if (tensor.name == "packed" || tensor.name == "norm") continue;
    ASSERT_TRUE(append_text(writer, tensor.name, pattern(tensor)).ok());
  }
  ASSERT_TRUE(writer.copy_other_files(root / "in").ok());
  ASSERT_TRUE(writer.add_file("report.json", "new").ok());
  ASSERT_TRUE(writer.finish(Json(Json::Object{})).ok());
  expect_all(Checkpoint::open(root / "out").value());
  EXPECT_EQ(read_test_file(root / "out/report.json"), "new");
  EXPECT_EQ(read_test_file(root / "out/tokenizer.json"), "new");
  EXPECT_FALSE(fs::exists(root / "out/config.json.tmp.4711"));
  EXPECT_FALSE(fs::exists(root / "out" / kJournalFile));
}

TEST(CheckpointWriter, OtherWorkAndOtherWritersAreRefusedAndNothingIsLost) {
  const TemporaryFolder root;
  write_half(root / "out");
  const Error other = CheckpointWriter::create(root / "out", kPlan, {.work = work_of("b")}).error();
  EXPECT_EQ(other.code, ErrorCode::invalid_argument);
  EXPECT_NE(other.message.find("expected the source it was begun with, a, found b"),
            std::string::npos)
      << other.message;
  const Error none = CheckpointWriter::create(root / "out", kPlan).error();
  EXPECT_NE(none.message.find("the unfinished output of another run"), std::string::npos);
  const auto writer = CheckpointWriter::create(root / "out", kPlan, {.work = work_of("a")});
  ASSERT_TRUE(writer.ok());
  const Error locked =
      CheckpointWriter::create(root / "out", kPlan, {.work = work_of("a")}).error();
  EXPECT_NE(locked.message.find("found another process at work"), std::string::npos)
      << locked.message;
  EXPECT_TRUE(fs::exists(root / "out/model.safetensors"));
}

/// Somebody who may write to the folder cannot make the writer write elsewhere.
TEST(CheckpointWriter, LinksInTheOutputAreRefused) {
  Json work;
  work.set("source", "x");
  for (const char* name : {"journal", "shard", "folder", "file"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder root;
    fs::create_directory(root / "real");
    fs::create_directory_symlink(root / "real", root / "parent");  // a parent may be a link
    const fs::path out = root / "parent" / "out";
    write_test_file(root / "victim", "mine");
    {
      auto writer = CheckpointWriter::create(out, kPlan, {.work = work}).value();
      ASSERT_TRUE(writer.suspend().value());
    }
    const std::string_view place(name);
    if (place == "folder") {
      fs::create_directory(root / "elsewhere");
      fs::create_directory_symlink(root / "elsewhere", out / "additional_chat_templates");
    } else {
      const fs::path link = out / (place == "journal" ? std::string(kJournalFile)
                                   : place == "shard" ? "model.safetensors"
                                                      : "report.json");
      fs::remove(link);
      fs::create_symlink(root / "victim", link);
    }
    const auto again = CheckpointWriter::create(out, kPlan, {.work = work});
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(again.error().message.find("expected no symbolic links in it, found "),
              std::string::npos)
        << again.error().message;
    EXPECT_EQ(read_test_file(root / "victim"), "mine");
  }
  const TemporaryFolder root;
  write_test_file(root / "victim", "mine");
  fs::create_symlink(root / "victim", root / kJournalFile);
  const auto journal = WriteJournal::open(root.path(), work);
  ASSERT_FALSE(journal.ok());
  EXPECT_NE(journal.error().message.find("found a symbolic link"), std::string::npos);
  EXPECT_EQ(read_test_file(root / "victim"), "mine");
}

TEST(CheckpointWriter, ATornJournalKeepsWhatIsSound) {
  const TemporaryFolder root;
  write_half(root / "out");
  const fs::path journal = root / "out" / kJournalFile;
  const std::string whole = read_test_file(journal);
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  struct Torn {
    std::string text;
    bool first, second;  // units that are still known
  };
  std::string flipped = whole;
  flipped[whole.size() - 5] ^= 1;  // sound JSON, other facts
  for (const Torn& torn : {Torn{whole.substr(0, last + 9), true, false},
                           Torn{whole.substr(0, whole.size() - 1), true, false},
                           Torn{flipped, true, false}, Torn{whole.substr(0, 10), false, false},
                           Torn{"", false, false}, Torn{whole + "tail", true, true}}) {
    write_test_file(journal, torn.text);
    auto opened = WriteJournal::open(root / "out", work_of("a"));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(opened.value().find("unit packed") != nullptr, torn.first) << torn.text;
    EXPECT_EQ(opened.value().find("unit norm") != nullptr, torn.second) << torn.text;
  }
}

}  // namespace
}  // namespace nibble
