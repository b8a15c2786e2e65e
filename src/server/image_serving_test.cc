// Requests with images and videos over HTTP: whom they hold up, who is refused before any are
// fetched, and what ends with its client.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>
#include <thread>

#include "base/file.h"
#include "base/sha256.h"
#include "media/testing/fake_programs.h"
#include "server/testing/test_images.h"
#include "server/testing/test_server.h"

namespace nibble {
namespace {

using namespace testing;

/// A server that fetches from one host, whose name is not resolved before the test says so.
class ImageServing : public ServerTest {
 protected:
  ServedModel model() const override {
    ImageFetcherOptions fetching;
    fetching.hosts = ImageHosts::parse({"img.test"}, ImageHosts::Plain::refused).value();
    fetching.resolve = [this,
                        wait = released_](const std::string&) -> Result<std::vector<std::string>> {
      ++resolved_;
      wait.wait();
      return std::vector<std::string>{"127.0.0.1"};  // an address that is not allowed
    };
    ImageIntakeOptions options = image_options();
    options.fetcher = std::make_shared<const ImageFetcher>(std::move(fetching));
    return model_with_images(options);
  }
  static std::string chat(const std::string& part) {
    return concat(R"({"max_tokens":4,"messages":[{"role":"user","content":[)", part, "]}]}");
  }

  const std::string remote_ = chat(image_part("https://img.test/a.png"));
  const std::string text_ = chat(R"({"type":"text","text":"hi"})");
  std::promise<void> release_;
  std::shared_future<void> released_ = release_.get_future().share();
  mutable std::atomic<int> resolved_ = 0;
};

TEST_F(ImageServing, TextDoesNotWaitForImagesThatAreFetched) {
  start("yes");
  RawClient waiting(server_->port());
  waiting.send(post("/tokenize", remote_));
  EXPECT_TRUE(soon([&] { return resolved_ > 0; }));
  for (const char* path : {"/tokenize", "/apply-template", kChat}) {
    const auto [status, body] = ask(post(path, text_));
    EXPECT_EQ(status, 200) << path << ": " << body;
  }
  release_.set_value();
  const std::string refused = waiting.read_until("network");
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 400")) << refused;
  EXPECT_NE(refused.find("private or reserved network"), std::string::npos) << refused;
}

TEST_F(ImageServing, ClientsAreJudgedBeforeImagesAreFetched) {
  release_.set_value();
  const std::string file = concat(::testing::TempDir(), "image_keys_", ::getpid(), ".jsonl");
  const std::string key = concat(R"({"name":"alice","sha256":")", sha256_hex("key-of-alice"),
                                 R"(","profiles":["instruct-general"]})");
  ASSERT_TRUE(write_file_atomically(file, key + "\n").ok());
  ServerOptions options;
  options.api_key_file = file;
  start("yes", options);
  std::filesystem::remove(file);
  const std::string alice = "Authorization: Bearer key-of-alice\r\n";
  const std::string allowed = concat(R"({"model":"instruct-general",)", remote_.substr(1));
  EXPECT_EQ(ask(post(kChat, remote_, alice)).first, 403);
  EXPECT_EQ(ask(post(kChat, allowed, alice + "X-Request-Timeout: never\r\n")).first, 400);
  EXPECT_EQ(resolved_, 0);
  const auto [status, body] = ask(post(kChat, allowed, alice));
  EXPECT_EQ(status, 400);
  EXPECT_NE(body.find("private or reserved network"), std::string::npos) << body;
  EXPECT_EQ(resolved_, 1);
}

TEST_F(ImageServing, FramesAreFetchedByTheSameRules) {
  release_.set_value();
  start("yes");
  const auto frame = [](const char* url) {
    return chat(concat(R"({"type":"video","video":[")", url, R"("]})"));
  };
  for (const char* path : {kChat, "/tokenize"}) {
    const auto [status, body] = ask(post(path, frame("https://img.test/a.png")));
    EXPECT_EQ(status, 400);
    EXPECT_NE(body.find("private or reserved network"), std::string::npos) << body;
  }
  EXPECT_EQ(resolved_, 2);
  const auto [status, body] = ask(post(kChat, frame("https://other.test/a.png")));
  EXPECT_EQ(status, 400);
  EXPECT_EQ(resolved_, 2) << body;
}

/// A server whose ffprobe leaves a file named by its number, which may have no bytes, and goes on
/// for longer than a test waits; so may decoding.
class VideoServing : public ServerTest {
 protected:
  ServedModel model() const override {
    ImageIntakeOptions options = image_options();
    options.videos.decoder = std::make_shared<const VideoDecoder>(
        programs_.decoder({.decode_ms_max = 10 * RawClient::kPatienceMs}));
    return model_with_images(options);
  }
  static std::string body() {
    return concat(R"({"max_tokens":4,"messages":[{"role":"user","content":[{"type":"video_url",)",
                  R"("video_url":"data:;base64,)", base64_of(fake_mp4()), R"("}]}]})");
  }
  /// The number of the program, once it runs. Its mark is removed.
  int process() const {
    int number = 0;
    EXPECT_TRUE(soon([&] {
      for (const auto& file : std::filesystem::directory_iterator(programs_ / "."))
        if (const std::string mark = file.path().extension(); file.path().stem() == "runs") {
          std::filesystem::remove(file.path());
          number = std::stoi(mark.substr(1));
        }
      return number > 0;
    }));
    return number;
  }
  static bool ends(int process) {
    return soon([&] { return ::kill(process, 0) != 0; });
  }

  const FakePrograms programs_{": > \"$(dirname \"$0\")/runs.$$\"; exec sleep 6000", ""};
};

TEST_F(VideoServing, DecodingEndsWithItsClient) {
  start("yes");
  for (const char* path : {kChat, "/tokenize"}) {
    int number = 0;
    {
      RawClient client(server_->port());
      client.send(post(path, body()));
      number = process();
      ASSERT_GT(number, 0) << path;
      EXPECT_EQ(::kill(number, 0), 0) << path;
    }
    EXPECT_TRUE(ends(number)) << path;
  }
}

TEST_F(VideoServing, TextDoesNotWaitForVideos) {
  start("yes");
  RawClient waiting(server_->port());
  waiting.send(post("/tokenize", body()));
  ASSERT_GT(process(), 0);
  const auto [status, answer] =
      ask(post("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})"));
  EXPECT_EQ(status, 200) << answer;
  const std::string log_of_bytes = base64_of(fake_mp4());
  EXPECT_EQ(log().find(log_of_bytes), std::string::npos);
}

}  // namespace
}  // namespace nibble
