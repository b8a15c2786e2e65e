// A test of HTTP alone: a server on a free port that runs on a thread of its own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>

#include "server/http/http_server.h"

namespace nibble::testing {

class ListeningTest : public ::testing::Test {
 protected:
  void listen(HttpOptions options, HttpHandler handler) {
    options.port = 0;
    auto server = HttpServer::listen(options, std::move(handler));
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    server_->post([this] { server_->stop(); });
    thread_.join();
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

}  // namespace nibble::testing
