package main

import (
	"context"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	deadLetters = "dead-letters"
	maxRetries  = 2
	handlerTime = 3 * time.Millisecond
)

type handler = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// newConsumer starts one more consumer of the group; the function that it returns has it leave.
func newConsumer(s *Setting, name string) (func() error, error) {
	everything := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	switch s.kind {
	case "tag-filter":
		return push(s, name, consumer.MessageSelector{Type: consumer.TAG, Expression: "A || C"}, s.noting(name))
	case "sql-filter":
		sql := consumer.MessageSelector{Type: consumer.SQL92, Expression: "a BETWEEN 2 AND 5 OR a = 9"}
		return push(s, name, sql, s.noting(name))
	case "batch":
		return push(s, name, everything, s.noting(name), consumer.WithConsumeMessageBatchMaxSize(4))
	case "broadcasting":
		return push(s, name, everything, s.noting(name), consumer.WithConsumerModel(consumer.BroadCasting))
	case "orderly":
		return push(s, name, everything, s.inOrder(name), consumer.WithConsumerOrder(true))
	case "retry":
		return failing(s, name, everything)
	case "request-reply":
		return replying(s, name, everything)
	case "lite-pull":
		return polling(s, name, everything)
	case "pull":
		return pulling(s, name, everything)
	}
	return push(s, name, everything, s.noting(name))
}

func push(s *Setting, name string, selector consumer.MessageSelector, handle handler, more ...consumer.Option) (func() error, error) {
	return subscribed(s.topic, selector, handle, s.consumerOptions(name, more...))
}

func subscribed(topic string, selector consumer.MessageSelector, handle handler, options []consumer.Option) (func() error, error) {
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	if err = c.Subscribe(topic, selector, handle); err != nil {
		return nil, err
	}
	return c.Shutdown, c.Start()
}

// note writes down messages of a queue. This client's own account of the queue is that of the first message.
func (s *Setting) note(name string, began int64, messages []*primitive.MessageExt) {
	for _, message := range messages {
		s.journal.got(s.kind, name, string(message.Body), began, message.Queue, message)
	}
}

func (s *Setting) noting(name string) handler {
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		s.note(name, micros(), messages)
		return consumer.ConsumeSuccess, nil
	}
}

// inOrder lasts long enough for another handler of the same queue to be seen beside it.
func (s *Setting) inOrder(name string) handler {
	return func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		began := micros()
		time.Sleep(handlerTime)
		s.note(name, began, messages)
		return consumer.ConsumeSuccess, nil
	}
}

// failing: every seventh message fails once, every eleventh always; who looks after dead letters stays to the end.
func failing(s *Setting, name string, selector consumer.MessageSelector) (func() error, error) {
	if name == "first" {
		options := s.consumerOptions(deadLetters, consumer.WithGroupName(s.group+"-"+deadLetters))
		if _, err := subscribed("%DLQ%"+s.group, selector, s.noting(deadLetters), options); err != nil {
			return nil, err
		}
	}
	handle := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		s.note(name, micros(), messages)
		if own, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			own.DelayLevelWhenNextConsume = 1
		}
		number := numberOf(string(messages[0].Body))
		if number%11 == 0 || number%7 == 0 && messages[0].ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}
	return push(s, name, selector, handle, consumer.WithMaxReconsumeTimes(maxRetries))
}

func replying(s *Setting, name string, selector consumer.MessageSelector) (func() error, error) {
	p, err := rocketmq.NewProducer(s.producerOptions(name + "-replier")...)
	if err != nil {
		return nil, err
	}
	if err = p.Start(); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		s.note(name, micros(), messages)
		for _, message := range messages {
			reply, err := consumer.CreateReplyMessage(message, []byte("re: "+string(message.Body)))
			if err == nil {
				// CreateReplyMessage of 2.1.2 takes the body for properties.
				reply.Body = []byte("re: " + string(message.Body))
				// When the requester is gone it sees that no reply came.
				_, _ = p.SendSync(ctx, reply)
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	return push(s, name, selector, handle)
}

func pullConsumer(s *Setting, name string, selector consumer.MessageSelector) (rocketmq.PullConsumer, error) {
	c, err := rocketmq.NewPullConsumer(s.consumerOptions(name)...)
	if err != nil {
		return nil, err
	}
	if err = c.Subscribe(s.topic, selector); err != nil {
		return nil, err
	}
	return c, c.Start()
}

// repeated runs step until it is ended, which waits for the step that runs.
func repeated(step func(), end func() error) func() error {
	var isOver atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !isOver.Load() {
			step()
		}
	}()
	return func() error {
		isOver.Store(true)
		<-done
		return end()
	}
}

// polling takes what the client has pulled, and says when it is through with it.
func polling(s *Setting, name string, selector consumer.MessageSelector) (func() error, error) {
	c, err := pullConsumer(s, name, selector)
	if err != nil {
		return nil, err
	}
	return repeated(func() {
		request, err := c.Poll(context.Background(), 200*time.Millisecond)
		if err == nil {
			s.note(name, micros(), request.GetMsgList())
			c.ACK(context.Background(), request, consumer.ConsumeSuccess)
		}
	}, c.Shutdown), nil
}
