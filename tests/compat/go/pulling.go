package main

import (
	"context"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const pullLimit = time.Second

// puller is a pull consumer; its shutdown waits for the running pulls.
type puller struct {
	rocketmq.PullConsumer
	name string
	runs sync.WaitGroup
}

// division gives each queue of a topic to one of the pull consumers that are there. Offsets are the program's own.
type division struct {
	lock    sync.Mutex
	pullers []*puller
}

var divisions sync.Map

// pulling adds a pull consumer to those that divide the queues; the first begins to pull.
func pulling(s *Setting, name string, selector consumer.MessageSelector) (func() error, error) {
	c, err := pullConsumer(s, name, selector)
	if err != nil {
		return nil, err
	}
	shared, isKnown := divisions.LoadOrStore(s.topic, &division{})
	d := shared.(*division)
	added := &puller{PullConsumer: c, name: name}
	d.lock.Lock()
	d.pullers = append(d.pullers, added)
	d.lock.Unlock()
	if !isKnown {
		queues, err := publishQueues(s)
		if err != nil {
			return nil, err
		}
		for index, queue := range queues {
			go d.pullOn(s, index, queue)
		}
	}
	return func() error {
		d.remove(added)
		added.runs.Wait()
		_ = c.PersistOffset(context.Background(), s.topic)
		return c.Shutdown()
	}, nil
}

func (d *division) remove(gone *puller) {
	d.lock.Lock()
	defer d.lock.Unlock()
	for index, each := range d.pullers {
		if each == gone {
			d.pullers = append(d.pullers[:index:index], d.pullers[index+1:]...)
			return
		}
	}
}

func (d *division) ownerOf(index int) *puller {
	d.lock.Lock()
	defer d.lock.Unlock()
	owner := d.pullers[index%len(d.pullers)]
	owner.runs.Add(1)
	return owner
}

// pullOn pulls one queue for ever, whichever puller has it.
func (d *division) pullOn(s *Setting, index int, queue *primitive.MessageQueue) {
	var offset int64
	for {
		owner := d.ownerOf(index)
		result := pullOnce(owner, queue, offset)
		if result != nil && result.Status == primitive.PullFound {
			s.note(owner.name, micros(), result.GetMessageExts())
			offset = result.NextBeginOffset
			_ = owner.UpdateOffset(queue, offset)
		} else {
			time.Sleep(10 * time.Millisecond)
		}
		owner.runs.Done()
	}
}

// pullOnce gives a pull up after a second, also one whose broker has gone: the client itself waits on. A late answer
// is not used, so nothing is lost.
func pullOnce(owner *puller, queue *primitive.MessageQueue, offset int64) *primitive.PullResult {
	answer := make(chan *primitive.PullResult, 1)
	go func() {
		own := *queue
		result, err := owner.PullFrom(context.Background(), &own, offset, 32)
		if err != nil {
			result = nil
		}
		answer <- result
	}()
	select {
	case result := <-answer:
		return result
	case <-time.After(pullLimit):
		return nil
	}
}
