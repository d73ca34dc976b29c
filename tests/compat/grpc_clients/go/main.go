// Scenarios of the Go client for gRPC against a proxy: endpoints, account, run, and the scenarios' names.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var config rmq.Config

func producer(topic string) (rmq.Producer, error) {
	made, err := rmq.NewProducer(&config, rmq.WithTopics(topic))
	if err != nil {
		return nil, err
	}
	return made, made.Start()
}

// A group begins at the end of a topic, so the first receive is before the first send.
func consumer(topic, group string, filter *rmq.FilterExpression) (rmq.SimpleConsumer, error) {
	own := config
	own.ConsumerGroup = group
	made, err := rmq.NewSimpleConsumer(&own, rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: filter}))
	if err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	_, _ = made.Receive(context.Background(), 1, 15*time.Second)
	return made, nil
}

func receive(from rmq.SimpleConsumer, count int, limit time.Duration) ([]string, error) {
	var got []string
	end := time.Now().Add(limit)
	for len(got) < count && time.Now().Before(end) {
		views, _ := from.Receive(context.Background(), 16, 20*time.Second)
		for _, view := range views {
			got = append(got, string(view.GetBody()))
			if err := from.Ack(context.Background(), view); err != nil {
				return got, err
			}
		}
	}
	return got, nil
}

func scenario(name, topic, group string) error {
	filter := rmq.SUB_ALL
	if name == "tag" {
		filter = rmq.NewFilterExpression("red")
	}
	from, err := consumer(topic, group, filter)
	if err != nil {
		return err
	}
	to, err := producer(topic)
	if err != nil {
		return err
	}
	var want []string
	due := time.Now()
	for number := 0; number < 10; number++ {
		message := &rmq.Message{Topic: topic, Body: []byte(fmt.Sprint(number))}
		wanted := true
		switch name {
		case "fifo":
			message.SetMessageGroup("one")
		case "tag":
			message.SetTag([]string{"red", "green"}[number%2])
			wanted = number%2 == 0
		case "priority":
			if err := message.SetPriority(int32(number % 4)); err != nil {
				return err
			}
		case "delay":
			due = time.Now().Add(2 * time.Second)
			message.SetDelayTimestamp(due)
		}
		if wanted {
			want = append(want, fmt.Sprint(number))
		}
		if _, err := to.Send(context.Background(), message); err != nil {
			return err
		}
	}
	got, err := receive(from, len(want), 20*time.Second)
	if err != nil {
		return err
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d of %d messages", len(got), len(want))
	}
	if name == "fifo" && strings.Join(got, "") != strings.Join(want, "") {
		return fmt.Errorf("the order was %v", got)
	}
	if name == "priority" && strings.Join(got, "") != "3726159048" {
		return fmt.Errorf("the order was %v", got)
	}
	if name == "delay" && time.Now().Before(due.Add(-time.Second)) {
		return fmt.Errorf("delivered early")
	}
	return nil
}

// Each lite topic comes in its order; a failed message comes again before those that follow it.
func lite(_, topic, group string) error {
	own := config
	own.ConsumerGroup = group
	var lock sync.Mutex
	got := map[string]string{}
	failed := false
	listener := &rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
		lock.Lock()
		defer lock.Unlock()
		body := string(view.GetBody())
		got[view.GetLiteTopic()] += body
		if body == "1" && !failed {
			failed = true
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}}
	from, err := rmq.NewLitePushConsumer(&own, rmq.NewLitePushConsumerConfig(topic, 30*time.Second),
		rmq.WithPushMessageListener(listener), rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushConsumptionThreadCount(4), rmq.WithPushMaxCacheMessageCount(64),
		rmq.WithPushMaxCacheMessageSizeInBytes(1<<20))
	if err != nil {
		return err
	}
	if err = from.Start(); err != nil {
		return err
	}
	if err = from.SubscribeLite("read"); err != nil {
		return err
	}
	to, err := producer(topic)
	if err != nil {
		return err
	}
	for number := 0; number < 4; number++ {
		for _, name := range []string{"read", "unread"} {
			message := &rmq.Message{Topic: topic, Body: []byte(fmt.Sprint(number))}
			message.SetLiteTopic(name)
			if _, err := to.Send(context.Background(), message); err != nil {
				return err
			}
		}
	}
	end := time.Now().Add(60 * time.Second)
	for time.Now().Before(end) {
		lock.Lock()
		found := got["read"]
		lock.Unlock()
		if len(found) >= 5 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	lock.Lock()
	defer lock.Unlock()
	if len(got) != 1 || got["read"] != "01123" {
		return fmt.Errorf("the order was %v", got)
	}
	return from.UnSubscribeLite("read")
}

// Sends until each message is acknowledged, while servers are killed, and receives all of them.
func faults(topic, group string) error {
	from, err := consumer(topic, group, rmq.SUB_ALL)
	if err != nil {
		return err
	}
	to, err := producer(topic)
	if err != nil {
		return err
	}
	fmt.Println("WARM")
	const count = 80
	failed := make(chan error, 1)
	go func() {
		for number := 0; number < count; number++ {
			end := time.Now().Add(60 * time.Second)
			for {
				_, err := to.Send(context.Background(), &rmq.Message{Topic: topic, Body: []byte(fmt.Sprint(number))})
				if err == nil {
					break
				}
				if time.Now().After(end) {
					failed <- err
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
			time.Sleep(200 * time.Millisecond)
		}
		failed <- nil
	}()
	got := map[string]bool{}
	end := time.Now().Add(150 * time.Second)
	for len(got) < count && time.Now().Before(end) {
		views, err := from.Receive(context.Background(), 16, 10*time.Second)
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for _, view := range views {
			got[string(view.GetBody())] = true
			from.Ack(context.Background(), view)
		}
	}
	if err := <-failed; err != nil {
		return err
	}
	if len(got) != count {
		return fmt.Errorf("%d of %d messages", len(got), count)
	}
	return nil
}

func main() {
	os.Setenv("mq.consoleAppender.enabled", "false")
	rmq.ResetLogger()
	config = rmq.Config{
		Endpoint:    os.Args[1],
		Credentials: &credentials.SessionCredentials{AccessKey: os.Args[2], AccessSecret: os.Args[3]},
	}
	for _, name := range os.Args[5:] {
		begin := time.Now()
		topic := os.Args[4] + "-" + name
		verdict, what := "PASS", ""
		run := scenario
		if name == "faults" {
			run = func(_, topic, group string) error { return faults(topic, group) }
		}
		if name == "lite" {
			run = lite
		}
		if err := run(name, topic, topic+"-group"); err != nil {
			verdict, what = "FAIL", strings.Join(strings.Fields(err.Error()), " ")
		}
		fmt.Printf("RESULT\t%s\t%s\t%d\t%s\n", name, verdict, time.Since(begin).Milliseconds(), what)
	}
	os.Exit(0)
}
