#include "router/answer_buffers.h"

#include "gtest/gtest.h"

namespace baton::router {
namespace {

class FakeStream final : public BufferedStream {
 public:
  explicit FakeStream(AnswerBuffers& buffers) : buffers_(buffers) {}
  void Buffer(int64_t bytes) {
    bytes_ += bytes;
    buffers_.Add(bytes);
  }
  int64_t buffered_bytes() const override { return bytes_; }
  void CutOff() override {
    cut_off = true;
    const int64_t bytes = bytes_;
    bytes_ = 0;
    buffers_.Add(-bytes);
  }
  bool cut_off = false;

 private:
  AnswerBuffers& buffers_;
  int64_t bytes_ = 0;
};

TEST(AnswerBuffers, TheLargestIsCutOffWhoeverPassesTheBound) {
  AnswerBuffers buffers(1000);
  const auto slow = std::make_shared<FakeStream>(buffers);
  const auto quick = std::make_shared<FakeStream>(buffers);
  buffers.Open(slow);
  buffers.Open(quick);
  slow->Buffer(900);
  quick->Buffer(100);
  EXPECT_FALSE(slow->cut_off);
  quick->Buffer(1);
  EXPECT_TRUE(slow->cut_off);
  EXPECT_FALSE(quick->cut_off);
  EXPECT_EQ(buffers.bytes(), 101);
  buffers.Close(*slow);
  buffers.Close(*quick);
  EXPECT_EQ(slow.use_count(), 1);
}

}  // namespace
}  // namespace baton::router
