// The three kinds of filters, each asked directly; slow, dead and broken ones.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "base/json.h"
#include "server/filters/filter_store.h"
#include "server/http/http_server.h"
#include "server/testing/test_certificate.h"
#include "testing/soon.h"

namespace nibble {
namespace {

class Filter : public ::testing::Test {
 protected:
  Filter() { std::filesystem::create_directories(folder_); }
  ~Filter() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name, const std::string& text) const {
    const auto path = folder_ / name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0755);
    return path.string();
  }
  std::unique_ptr<OutputFilter> make(const std::string& spec, const std::string& ca = "") {
    const FilterReport report = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      reports_ += concat(line, "\n");
    };
    auto made = make_filter(spec, report, ca);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made.ok() ? std::move(made).value() : nullptr;
  }
  static FilterVerdict ask(OutputFilter& filter, std::string text) {
    auto said = std::make_shared<std::promise<FilterVerdict>>();
    filter.ask(std::make_shared<const FilterQuestion>(
                   FilterQuestion{FilterPlace::content, std::move(text)}),
               [said](FilterVerdict verdict) { said->set_value(verdict); });
    auto coming = said->get_future();
    if (coming.wait_for(testing::kPatience) != std::future_status::ready) {
      ADD_FAILURE() << "no verdict";
      return FilterVerdict::failed;
    }
    return coming.get();
  }
  /// A program that answers by `answer`, Python that sets `verdict` of `text`.
  std::string program(const std::string& answer) const {
    return concat("exec:", file("filter.py",
                                concat("#!/usr/bin/env python3\n", "import json, os, sys, time\n",
                                       "for line in sys.stdin:\n"
                                       "  asked = json.loads(line)\n"
                                       "  text = asked['text']\n  ",
                                       answer,
                                       "\n  print(json.dumps({'id': asked['id'], "
                                       "'verdict': verdict}), flush=True)\n")));
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / concat("nibble_filter_", ::getpid());
  std::mutex mutex_;
  std::string reports_;
};

TEST_F(Filter, PatternsOfAFile) {
  const auto filter = make(
      concat("regex:", file("patterns", "# words\n\n(?i)\\bsecret\\b\r\n[0-9]{4}-[0-9]{4}\n")));
  EXPECT_EQ(ask(*filter, "nothing here"), FilterVerdict::pass);
  EXPECT_EQ(ask(*filter, "a SECRET."), FilterVerdict::hit);
  EXPECT_EQ(ask(*filter, "secretary"), FilterVerdict::pass);
  EXPECT_EQ(ask(*filter, "card 1234-5678"), FilterVerdict::hit);
  EXPECT_EQ(ask(*filter, ""), FilterVerdict::pass);
}

TEST_F(Filter, HostileTextIsLinear) {
  const auto filter = make(concat("regex:", file("patterns", "(a+)+b\n(x|xx|xxx)*y\n")));
  EXPECT_EQ(ask(*filter, std::string(4'000'000, 'a')), FilterVerdict::pass);
  EXPECT_EQ(ask(*filter, std::string(4'000'000, 'x') + "y"), FilterVerdict::hit);
}

TEST_F(Filter, SpecsThatAreNoneAreRefusedInOneLine) {
  for (const std::string& spec :
       {std::string("words"), std::string("regex:/nothing/here"), std::string("exec:"),
        std::string("exec:/nothing/here"), std::string("http:"), std::string("http://"),
        std::string("https://"), std::string("ftp://host/x"), std::string("http://host:0/"),
        std::string("https://host:66000/"), std::string("http://h:p/"),
        concat("regex:", file("bad", "fine\n(\n")), concat("regex:", file("empty", "# none\n"))}) {
    const auto made = make_filter(spec, {});
    ASSERT_FALSE(made.ok()) << spec;
    EXPECT_FALSE(made.error().message.empty());
    EXPECT_EQ(made.error().message.find('\n'), std::string::npos) << made.error().message;
  }
}

TEST_F(Filter, AProgramJudges) {
  const auto filter = make(program("verdict = 'hit' if 'bad' in text else 'pass'"));
  EXPECT_EQ(ask(*filter, "good \"quoted\"\nlines é"), FilterVerdict::pass);
  EXPECT_EQ(ask(*filter, "bad"), FilterVerdict::hit);
  std::atomic<int> hits = 0;
  std::atomic<int> answers = 0;
  for (int i = 0; i < 300; ++i)
    filter->ask(std::make_shared<const FilterQuestion>(
                    FilterQuestion{FilterPlace::prompt, i % 3 == 0 ? "bad" : "good"}),
                [&](FilterVerdict verdict) {
                  hits += verdict == FilterVerdict::hit ? 1 : 0;
                  ++answers;
                });
  EXPECT_TRUE(testing::soon([&] { return answers == 300; }));
  EXPECT_EQ(hits, 100);
}

TEST_F(Filter, AProgramThatDiesIsStartedAgain) {
  const auto filter = make(program("if 'die' in text: os._exit(1)\n  verdict = 'pass'"));
  const auto passes = [&] { return ask(*filter, "fine") == FilterVerdict::pass; };
  EXPECT_TRUE(passes());
  bool absent = false;  // while it is not there, questions fail at once
  for (int i = 0; i < 20 && !absent; ++i) {
    EXPECT_EQ(ask(*filter, "die"), FilterVerdict::failed);
    absent = !passes();
    EXPECT_TRUE(testing::soon(passes));
  }
  EXPECT_TRUE(absent);
  const std::lock_guard lock(mutex_);
  EXPECT_NE(reports_.find("starting it again"), std::string::npos);
  EXPECT_EQ(reports_.find("die"), std::string::npos);  // never the text
}

TEST_F(Filter, AProgramThatSpeaksNonsenseHasFailed) {
  const auto nonsense = make(program("verdict = 'maybe'"));
  EXPECT_EQ(ask(*nonsense, "x"), FilterVerdict::failed);
  const auto noise = make(program("print('what?', flush=True); verdict = 'pass'"));
  EXPECT_EQ(ask(*noise, "x"), FilterVerdict::failed);
}

/// A service that judges on its own thread.
class Service {
 public:
  explicit Service(HttpHandler handler, TlsFiles tls = {}) {
    HttpOptions options;
    options.port = 0;
    options.tls = std::move(tls);
    server_ = HttpServer::listen(options, std::move(handler)).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Service() { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    server_->post([this] { server_->stop(); });
    thread_.join();
  }
  std::string url() const { return concat("http://127.0.0.1:", server_->port(), "/judge"); }
  std::string url_of(std::string_view host) const {
    return concat("https://", host, ":", server_->port(), "/judge");
  }

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(Filter, AServiceJudges) {
  Service service([](const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
    const Json asked = parse_json(request.body, "a question").value();
    const std::string& text = asked.find("text")->as_string();
    if (text == "500") return exchange->respond({.status = 500, .body = R"({"verdict":"pass"})"});
    if (text == "odd") return exchange->respond({.body = "yes"});
    if (request.path != "/judge" || asked.find("place")->as_string() != "content")
      return exchange->respond({.status = 404});
    exchange->respond({.body = text.find("bad") != std::string::npos ? R"({"verdict":"hit"})"
                                                                     : R"({"verdict":"pass"})"});
  });
  const auto filter = make("http:" + service.url());
  EXPECT_EQ(ask(*filter, "good"), FilterVerdict::pass);
  EXPECT_EQ(ask(*filter, "a bad one"), FilterVerdict::hit);
  EXPECT_EQ(ask(*filter, "500"), FilterVerdict::failed);
  EXPECT_EQ(ask(*filter, "odd"), FilterVerdict::failed);
  EXPECT_EQ(ask(*filter, "good again"), FilterVerdict::pass);
  service.stop();
  EXPECT_EQ(ask(*filter, "good"), FilterVerdict::failed);
}

/// Services whose certificates an authority of the test's own has signed.
class EncryptedFilter : public Filter {
 protected:
  EncryptedFilter() {
    testing::write_certificate(ca_);
    testing::write_certificate(other_ca_);
    testing::write_certificate(named_, "DNS:localhost,IP:127.0.0.1", &ca_);
    testing::write_certificate(misnamed_, "DNS:elsewhere.example", &ca_);
  }
  testing::PemPair pair(const std::string& name) const {
    return {(folder_ / (name + ".pem")).string(), (folder_ / (name + ".key")).string()};
  }
  static void judge(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
    const bool bad = request.body.find("bad") != std::string::npos;
    exchange->respond({.body = bad ? R"({"verdict":"hit"})" : R"({"verdict":"pass"})"});
  }
  static TlsFiles files(const testing::PemPair& pair) {
    return {.certificate = pair.certificate, .key = pair.key};
  }
  std::string reports() {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  const testing::PemPair ca_ = pair("ca"), other_ca_ = pair("other"), named_ = pair("named"),
                         misnamed_ = pair("misnamed");
};

TEST_F(EncryptedFilter, AServiceThatShowsItsCertificateJudges) {
  Service service(judge, files(named_));
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const auto filter = make(service.url_of(host), ca_.certificate);
    EXPECT_EQ(ask(*filter, "good"), FilterVerdict::pass) << reports();
    EXPECT_EQ(ask(*filter, "bad"), FilterVerdict::hit);
    EXPECT_EQ(ask(*filter, "good"), FilterVerdict::pass);
  }
  EXPECT_EQ(reports(), "");
  const auto filter = make("http:" + service.url_of("localhost"), ca_.certificate);
  EXPECT_EQ(ask(*filter, "good"), FilterVerdict::pass);
  service.stop();
  EXPECT_EQ(ask(*filter, "good"), FilterVerdict::failed);
}

TEST_F(EncryptedFilter, AStrangersCertificateIsNoAnswer) {
  Service service(judge, files(named_));
  EXPECT_EQ(ask(*make(service.url_of("localhost"), other_ca_.certificate), "x"),
            FilterVerdict::failed);
  EXPECT_NE(reports().find("certificate verify failed"), std::string::npos) << reports();
  EXPECT_EQ(ask(*make(service.url_of("localhost")), "x"), FilterVerdict::failed);  // the system's
  Service misnamed(judge, files(misnamed_));
  EXPECT_EQ(ask(*make(misnamed.url_of("localhost"), ca_.certificate), "x"), FilterVerdict::failed);
  EXPECT_EQ(ask(*make(misnamed.url_of("127.0.0.1"), ca_.certificate), "x"), FilterVerdict::failed);
  Service plain(judge);
  EXPECT_EQ(ask(*make(plain.url_of("localhost"), ca_.certificate), "x"), FilterVerdict::failed);
}

TEST_F(EncryptedFilter, CertificatesThatAreNoneAreRefused) {
  EXPECT_TRUE(check_filter_ca(ca_.certificate).ok());
  for (const std::string& bad : {file("text", "no certificate"), std::string("/nothing/here")}) {
    EXPECT_FALSE(check_filter_ca(bad).ok());
    const auto made = make_filter("https://host/", {}, bad);
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find(bad), std::string::npos) << made.error().message;
  }
}

TEST_F(Filter, AStoreMakesEachOnceAndEndsWhatNobodyHolds) {
  FilterStore store({});
  const std::string spec = "regex:" + file("patterns", "one\n");
  const auto first = store.get(spec);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(store.get(spec).value(), first.value());
  std::weak_ptr<OutputFilter> other = store.get("regex:" + file("others", "two\n")).value();
  EXPECT_FALSE(other.expired());
  store.sweep();
  EXPECT_TRUE(other.expired());
  EXPECT_EQ(store.get(spec).value(), first.value());
  EXPECT_FALSE(store.get("words").ok());
  for (int i = 1; i < 64; ++i)
    ASSERT_TRUE(store.get("regex:" + file(concat("p", i), "x\n")).ok()) << i;
  EXPECT_FALSE(store.get("regex:" + file("p64", "x\n")).ok());
  EXPECT_EQ(store.get(spec).value(), first.value());
  store.sweep();
  EXPECT_TRUE(store.get("regex:" + file("p64", "x\n")).ok());
}

}  // namespace
}  // namespace nibble
