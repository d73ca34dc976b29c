// A producer and a push consumer of rocketmq-client-go: sends `count` messages and waits for all of them.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func main() {
	address, topic := os.Args[1], os.Args[2]
	count, _ := strconv.Atoi(os.Args[3])
	started := time.Now()
	what := run(address, topic, count)
	verdict := "PASS"
	if what != "" {
		verdict = "FAIL"
	}
	fmt.Printf("RESULT\tpush\t%s\t%d\t%s\n", verdict, time.Since(started).Milliseconds(), what)
}

func run(address, topic string, count int) string {
	var lock sync.Mutex
	seen, done := map[string]bool{}, make(chan struct{})
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{address}), consumer.WithGroupName(topic+"-group"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err.Error()
	}
	everything := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	err = c.Subscribe(topic, everything, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, message := range messages {
			// Each message is refused once, and comes back.
			if message.ReconsumeTimes == 0 && string(message.Body) == "0" {
				return consumer.ConsumeRetryLater, nil
			}
			seen[string(message.Body)] = true
			if len(seen) == count {
				close(done)
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err.Error()
	}
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{address}), producer.WithGroupName(topic+"-senders"))
	if err != nil {
		return err.Error()
	}
	if err = p.Start(); err != nil {
		return err.Error()
	}
	defer p.Shutdown()
	for i := 0; i < count; i++ {
		if _, err = p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(strconv.Itoa(i)))); err != nil {
			return err.Error()
		}
	}
	if err = c.Start(); err != nil {
		return err.Error()
	}
	defer c.Shutdown()
	select {
	case <-done:
		return ""
	case <-time.After(90 * time.Second):
		lock.Lock()
		defer lock.Unlock()
		return fmt.Sprintf("%d of %d messages", len(seen), count)
	}
}
