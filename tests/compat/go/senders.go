package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	batchSize   = 8
	shards      = 16
	replyWithin = 15 * time.Second

	firstHeartbeat = 1500 * time.Millisecond
)

// Sender sends message after message of one kind; what each is like follows from its number.
type Sender func(number int)

func (s *Setting) acknowledged(key string, began int64, isPlaced bool, result *primitive.SendResult, index int) {
	if result.Status != primitive.SendOK {
		s.journal.unsure(s.kind, key, began, fmt.Sprint("status ", result.Status))
	} else if isPlaced {
		s.journal.sent(s.kind, key, began, result.MessageQueue, result.QueueOffset+int64(index))
	} else {
		s.journal.sent(s.kind, key, began, nil, 0)
	}
}

func newSender(s *Setting) (Sender, error) {
	if s.kind == "transaction" {
		return transactions(s)
	}
	instance := "producers"
	if s.kind == "request-reply" {
		instance = "requesters"
	}
	options := s.producerOptions(instance)
	if s.kind == "orderly" {
		options = append(options, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	}
	p, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	if err = p.Start(); err != nil {
		return nil, err
	}
	switch s.kind {
	case "async":
		return func(number int) { s.sendAsync(p, number) }, nil
	case "oneway":
		return func(number int) { s.sendOneway(p, number) }, nil
	case "batch":
		return func(number int) { s.sendBatch(p, number) }, nil
	case "request-reply":
		makeKnown(p)
		return func(number int) { go s.request(p, number) }, nil
	case "orderly":
		return sharded(s, p)
	}
	isPlaced := s.kind != "delay-level" && s.kind != "delay-time"
	return func(number int) { s.send(p, number, isPlaced) }, nil
}

func (s *Setting) send(p rocketmq.Producer, number int, isPlaced bool) {
	message := s.message(number)
	switch s.kind {
	case "tag-filter":
		message.WithTag("ABC"[number%3 : number%3+1])
	case "sql-filter":
		message.WithProperty("a", strconv.Itoa(number%10))
	case "delay-level":
		message.WithDelayTimeLevel(1 + number%2)
	case "delay-time":
		// This client has no name for it; the broker goes by the property.
		message.WithProperty("TIMER_DELAY_MS", strconv.Itoa(1000+1000*(number%4)))
	}
	s.sendSync(p, number, message, isPlaced)
}

func (s *Setting) sendSync(p rocketmq.Producer, number int, message *primitive.Message, isPlaced bool) {
	began := micros()
	result, err := p.SendSync(context.Background(), message)
	if err != nil {
		s.journal.unsure(s.kind, s.key(number), began, err)
		return
	}
	s.acknowledged(s.key(number), began, isPlaced, result, 0)
}

func (s *Setting) sendAsync(p rocketmq.Producer, number int) {
	began := micros()
	err := p.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, failure error) {
		if failure != nil {
			s.journal.unsure(s.kind, s.key(number), began, failure)
			return
		}
		s.acknowledged(s.key(number), began, true, result, 0)
	}, s.message(number))
	if err != nil {
		s.journal.unsure(s.kind, s.key(number), began, err)
	}
}

// sendOneway: nobody acknowledges these; the checks ask for those that were sent while all was well.
func (s *Setting) sendOneway(p rocketmq.Producer, number int) {
	began := micros()
	err := p.SendOneWay(context.Background(), s.message(number))
	s.journal.unsure(s.kind, s.key(number), began, fmt.Sprint("oneway ", err))
}

func (s *Setting) sendBatch(p rocketmq.Producer, number int) {
	var messages []*primitive.Message
	for i := 0; i < batchSize; i++ {
		messages = append(messages, s.message(number*batchSize+i))
	}
	began := micros()
	result, err := p.SendSync(context.Background(), messages...)
	for i := 0; i < batchSize; i++ {
		if err != nil {
			s.journal.unsure(s.kind, s.key(number*batchSize+i), began, err)
		} else {
			s.acknowledged(s.key(number*batchSize+i), began, true, result, i)
		}
	}
}

// makeKnown makes brokers know a new client, so that replies find it. Its first heartbeat leaves a second after the start
// and reaches only the brokers on routes that the client has by then. The next heartbeat follows half a minute later.
func makeKnown(p rocketmq.Producer) {
	_ = p.SendOneWay(context.Background(), primitive.NewMessage("TBW102", []byte("refused")))
	time.Sleep(firstHeartbeat)
}

func (s *Setting) request(p rocketmq.Producer, number int) {
	began := micros()
	reply, err := p.Request(context.Background(), replyWithin, s.message(number))
	if err != nil {
		s.journal.reply(s.kind, s.key(number), began, err)
	} else if reply == nil {
		s.journal.reply(s.kind, s.key(number), began, "no reply and no error")
	} else {
		s.journal.reply(s.kind, s.key(number), began, string(reply.Body))
	}
	s.journal.unsure(s.kind, s.key(number), began, "the reply tells")
}

// sharded keeps each shard to one queue, also while its broker is away.
func sharded(s *Setting, p rocketmq.Producer) (Sender, error) {
	queues, err := publishQueues(s)
	if err != nil {
		return nil, err
	}
	return func(number int) {
		message := s.message(number)
		message.Queue = queues[number%shards%len(queues)]
		s.sendSync(p, number, message, true)
	}, nil
}

func publishQueues(s *Setting) ([]*primitive.MessageQueue, error) {
	a, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(s.nameServers)))
	if err != nil {
		return nil, err
	}
	defer a.Close()
	return a.FetchPublishMessageQueues(context.Background(), s.topic)
}

// outcomes: of four transactions one commits, one rolls back, one commits when asked, one rolls back when asked.
type outcomes struct{ setting *Setting }

func (o outcomes) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch numberOf(string(message.Body)) % 4 {
	case 0:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (o outcomes) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	key := string(message.Body)
	o.setting.journal.asked(o.setting.kind, key)
	if numberOf(key)%2 == 0 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func transactions(s *Setting) (Sender, error) {
	// Questions reach whichever producer of a shared client comes first.
	p, err := rocketmq.NewTransactionProducer(outcomes{s}, s.producerOptions("transactions")...)
	if err != nil {
		return nil, err
	}
	if err = p.Start(); err != nil {
		return nil, err
	}
	return func(number int) {
		began := micros()
		result, err := p.SendMessageInTransaction(context.Background(), s.message(number))
		if err != nil {
			s.journal.unsure(s.kind, s.key(number), began, err)
			return
		}
		s.acknowledged(s.key(number), began, false, result.SendResult, 0)
	}, nil
}
