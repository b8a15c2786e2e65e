// A server whose passes stand at a gate until a test opens it.
#pragma once

#include "server/testing/test_server.h"
#include "testing/gate.h"

namespace nibble::testing {

class GatedBackend final : public ScriptedBackend {
 public:
  GatedBackend(std::vector<int32_t> script, std::shared_ptr<Gate> gate)
      : ScriptedBackend(std::move(script)), gate_(std::move(gate)) {}
  Residual embed(const Batch& batch) override {
    gate_->pass();
    return ScriptedBackend::embed(batch);
  }

 private:
  std::shared_ptr<Gate> gate_;
};

class GatedServerTest : public ServerTest {
 protected:
  std::unique_ptr<Backend> backend(std::vector<int32_t> script,
                                   std::chrono::milliseconds) const override {
    return std::make_unique<GatedBackend>(std::move(script), gate_);
  }
  void TearDown() override {
    gate_->open();
    ServerTest::TearDown();
    Gate::dismiss(gate_);
  }
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
};

}  // namespace nibble::testing
